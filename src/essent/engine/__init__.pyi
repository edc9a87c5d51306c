from .choice import choose as choose
from .compiled import CompiledEncoder as CompiledEncoder
from .conversion import compile as compile
from .files import load as load
from .gain import Gain as Gain
from .gain import Loss as Loss
from .gain import compare as compare
