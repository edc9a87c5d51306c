from .search import PROMPT_BERT as PROMPT_BERT
from .search import Candidate as Candidate
from .search import Definition as Definition
from .search import Generator as Generator
from .search import Grammar as Grammar
from .search import generate_templates as generate_templates
from .search import search_templates as search_templates
