from .choice import choose as choose
from .compiled import CompiledEncoder as CompiledEncoder
from .conversion import compile as compile
from .files import load as load
from .loss import Loss as Loss
