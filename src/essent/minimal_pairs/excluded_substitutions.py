"""What WordNet lists as synonym or antonym of a frequent word and is none in most sentences.

The lists are editorial: what a speaker of English would say of the words, whatever the sentence. Words that are not
here are judged in their sentence alone (`sureness.py`). One line a word, then what does not stand for it.
"""

from __future__ import annotations

SYNONYMS = """
abnormal: defective excessive insane unnatural
accept: believe recognize
acknowledge: admit appreciate communicate confess react receipt respond
actual: literal
add: increase
adjacent: connected contiguous imminent
afraid: concerned dismayed shocked
amazing: baronial formidable grand staggering striking surprising
ancient: aged historic past
arrive: land
arrogant: proud swelled swollen vain
asleep: unconscious
attack: bomb fight invade rape
attractive: beautiful cute fascinating pleasing
autistic: afflicted ailing nauseated sick sickish
average: normal
avoid: prevent
awesome: formidable grand imposing staggering striking stupefying
awful: frightening
bad: evil rotten sorry
beautiful: attractive handsome picturesque pleasing scenic
believe: consider expect rely view
big: bigger great large larger
black: dark
bomb: attack shell
broken: damaged injured
brutal: extreme intense severe terrific
change: stay
cheap: inexpensive
clean: remove
close: shut
cold: arctic frozen
collect: store
competitive: aggressive
conscious: awake intended voluntary
constant: faithful invariant stable
contain: include
cover: wrap
crazy: fantastic maniacal psychotic strange
critical: vital
criticize: comment
cruel: brute
cry: scream yell
curious: funny inquiring peculiar queer rum strange unusual wondering
cute: attractive charismatic crafty engaging
daily: monthly weekly yearly
dangerous: vulnerable
dark: black
dead: murdered
difficult: ambitious embarrassing nasty troublesome trying
diffuse: penetrate
discourage: advise
disgusted: annoyed exasperated frowning irritated offended pissed stung
dislike: resent
disrespectful: annihilating contemptuous derisive disdainful
dominant: paramount sovereign superior supreme
double: dual multiple triple
dried: baked preserved smoked
drink: gulp sip suck wine
drunk: smashed
eat: lunch
embarrassing: acid challenging difficult hard harsh unpleasant
end: break complete culminate resolve
enjoy: experience utilize
exact: accurate correct literal perfect right
excellent: greatest super superior superlative
exotic: alien curious strange unusual
expensive: overpriced valuable
exquisite: extreme intense intensive keen severe terrific
extra: excess unnecessary
extraordinary: special
fail: neglect
fake: assumed mock pretended pseudo
familiar: known
famous: known notable noted
fantastic: strange unusual
far: long remote
fat: thick
federal: northern union
final: closing concluding eventual supreme ultimate
find: detect determine encounter locate notice observe
float: transport
forbid: prevent
force: pressure push
forget: neglect
friendless: discarded unwanted
funny: familiar
future: incoming prospective succeeding
gain: benefit derive reach
generic: overall widespread
giant: bigger great larger
glad: willing
good: favorable solid
great: big bigger huge important large larger massive
grow: expand increase
guilty: ashamed criminal
handsome: beautiful generous lovely picturesque pretty
happy: blissful fortunate golden laughing lucky
hard: trying
harmful: catastrophic ill mischievous painful
hate: disdain
healthy: flushed robust well
heat: toast
hide: bury disguise obscure
hideous: outrageous
high: top upper
hit: reach touch
hollow: sunken
honest: honorable reliable true
honor: accept recognise reward salute
hope: desire plan
hot: warm
huge: bigger great larger plumping walloping
hypocritical: obsequious
ignore: discount reject treat
immoral: evil shameful shocking
implicit: inherent
important: big great key serious valuable
impossible: hopeless unrealistic
impressive: dramatic glorious proud
improve: alter amend better change fix perfect reform relieve repair
include: consider contain
incorrect: faulty improper
increase: add change deepen extend widen
independent: free individual separate
inevitable: necessary
inflated: accumulated increased multiplied
insane: idiotic maniacal paranoid
insensitive: unresponsive
intellectual: mental psychic
international: abroad foreign overseas whole world
irrelevant: orthogonal unsuitable
itchy: painful sore
large: bigger great
laugh: roast
lazy: slow
legal: judicial
lifelong: durable endless extended lengthy overnight prolonged
like: desire prefer wish
limit: confine specify
link: connect
long: extended far lengthy
love: cherish
lovely: handsome picturesque scenic
mad: crazy frantic insane
manage: handle
married: joined
massive: bigger great larger
mental: intellectual moral
middle: central
mild: gentle moderate temperate
minimum: nominal
miserable: pathetic poor suffering unfortunate
muddy: watery
multiple: aggregate binary double doubled dual fourfold triple twofold
multiply: calculate double
naive: childlike
national: domestic
new: current fresh recent
nice: respectable
normal: average sane
notice: detect discover find sight
odd: even
old: aged ancient elderly past senior
original: new primary
painful: biting poignant
passive: peaceful
past: ancient historic old recent
pathetic: miserable poor ridiculous unfortunate
perfect: complete ideal idealized
personal: individualized private subjective
pleasant: beautiful grateful
political: governmental
popular: common
possible: contingent likely potential practical realistic viable workable
predictable: inevitable
pretty: awful bad handsome picturesque
principal: cardinal distinguished
proper: decent
protect: wall ward
proud: arrogant
public: common communal
pull: extract
push: urge
quick: instant
raise: boost lift
rational: coherent intellectual
ready: waiting willing
real: actual factual
realize: create know recognize see
reasonable: moderate
recent: historic new past
refuse: decline
reject: decline refuse
related: attached
religious: inspirational sacred
remarkable: important singular
respect: accept consider honor honour regard reverence
respond: act refuse
reverse: alter change correct overthrow switch
right: proper
sad: bittersweet mournful tragicomic
safe: secure
senior: elder elderly older
separate: joint
serious: dangerous important
severe: intense
shady: doubtful infamous notorious shadowed
short: brief low
show: prove
significant: large
similar: corresponding
single: individual separate
small: lesser slim
special: exceptional
specific: peculiar special specialized unique
stellar: astral major star starring
straightforward: direct square
strange: curious exotic fantastic funny
strong: intense robust severe
stubborn: sturdy
stupid: dazed lumpish
successful: fortunate productive prosperous
supply: partner
sure: careful positive
surround: border
tasteless: bland brassy cheap loud
tie: connect
tired: exhausted worn
tolerable: allowable
top: crowning high upper uppermost
true: accurate honest right truthful
trust: anticipate hope rely
typical: distinctive
ugly: awkward evil horrible worthless
undemocratic: totalitarian
unfortunate: disastrous miserable pathetic piteous poor
unlucky: dispossessed poor
unreal: insubstantial
unrealistic: impossible impractical
upper: top
voluntary: conscious intended unpaid
weep: blubber whimper
weird: ghostlike magic magical miraculous supernatural
white: light
wide: broad
win: acquire triumph
wise: sage
wonderful: howling wonderworking
worry: dwell fear
worthless: evil pointless vile wasted
wrong: evil false inappropriate mistaken
young: adolescent boyish childlike immature junior new teen teenage
"""

ANTONYMS = """
awkward: graceful
collect: spread
common: individual
continue: discontinue
cool: warm
curious: familiar
delete: record
discrete: joint
dried: wet
enforce: exempt
enjoy: suffer
exact: incorrect
extra: necessary
fantastic: familiar
favorite: unpopular
favourite: unpopular
force: pull
full: empty
general: specific
great: little small
grow: decrease
hard: soft
incredible: credible
insane: sane
invasive: confined
know: ignore
mad: sane
marvelous: credible
neutral: negative positive
noteworthy: unworthy
offensive: defensive
pathetic: fortunate
personal: impersonal
petty: senior
pull: push
ridiculous: wise
salty: fresh
sell: buy
sick: well
stay: move
stellar: minor
top: side
tough: tender
unbelievable: credible
upper: side
vocal: instrumental
walk: ride
warm: hot
weird: natural
"""


def _pairs(lines: str) -> frozenset[tuple[str, str]]:
    rows = (line.partition(":") for line in lines.split("\n") if line)
    return frozenset((word, other) for word, _, others in rows for other in others.split())


EXCLUDED = _pairs(SYNONYMS) | _pairs(ANTONYMS)
