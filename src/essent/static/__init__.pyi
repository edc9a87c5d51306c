from .distillation import collect as collect
from .distillation import distill as distill
from .distillation import find_choice as find_choice
from .distillation import make_encoder as make_encoder
from .encoder import StaticEncoder as StaticEncoder
from .table import Choice as Choice
