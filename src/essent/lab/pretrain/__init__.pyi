from .run import pretrain as pretrain
from .settings import Pretraining as Pretraining
