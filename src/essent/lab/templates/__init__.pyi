from .generate import Candidate as Candidate
from .generate import Definition as Definition
from .generate import Generator as Generator
from .generate import generate_templates as generate_templates
from .search import PROMPT_BERT as PROMPT_BERT
from .search import Grammar as Grammar
from .search import search_templates as search_templates
