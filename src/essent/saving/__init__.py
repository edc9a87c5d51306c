"""A recipe's module as a folder: stock sentence-transformers modules where they compute the same, golden vectors."""

from essent.lazy import needs_torch

with needs_torch(__name__):
    from essent.saving.card import amend_card
    from essent.saving.load import folder_of, load_folder
    from essent.saving.save import GOLDEN_TEXTS, SavableModule, packages_of, save_folder
    from essent.saving.static_table import STORED, UNIT, rounded
    from essent.saving.stock_modules import NoStockModulesError, stock_modules

__all__ = [
    "GOLDEN_TEXTS",
    "STORED",
    "UNIT",
    "NoStockModulesError",
    "SavableModule",
    "amend_card",
    "folder_of",
    "load_folder",
    "packages_of",
    "rounded",
    "save_folder",
    "stock_modules",
]
