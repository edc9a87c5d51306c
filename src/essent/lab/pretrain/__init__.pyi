from .run import Pretrained as Pretrained
from .run import pretrain as pretrain
from .settings import Pretraining as Pretraining
from .settings import Start as Start
