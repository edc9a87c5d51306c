from .compiled import CompiledEncoder as CompiledEncoder
from .compiled import Loss as Loss
from .conversion import compile as compile
from .files import load as load
