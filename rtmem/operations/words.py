"""Words that a stemmer cannot help with, in English and Russian: those that say nothing, and irregular forms.

Only closed classes (pronouns, prepositions, auxiliaries, question words), never what may be a name or a month: `will`,
`may`, `mark` stay searchable. Everything here is as `text_query` has it: lower case, without accents, without
apostrophes but for contractions that would be words without them (`he'll`).
"""

from __future__ import annotations

from typing import Final

# English. A question is half of these, and a long document matches them all.
_ENGLISH: Final = """
a an the and or but nor if of at by for with about to from in into on onto out off over under up down as than then is
are was were be been being am isnt arent wasnt werent aint im youre hes shes its theyre do does did done doing dont
doesnt didnt have has had having havent hasnt hadnt ive youve weve theyve would could should shall cant couldnt
wouldnt shouldnt wont i'd you'd he'd she'd we'd they'd i'll you'll he'll she'll we'll they'll i you he she it we they
me him her us them my your his our their mine yours hers ours theirs myself yourself himself herself itself ourselves
yourselves themselves this that these those what which who whom whose when where why how whats whos wheres whens hows
thats theres heres so there here not no too very just also any some such s t
"""

_RUSSIAN: Final = """
и в во не что он на я с со как а то все она так его но да ты к ко у же вы за бы по ее мне было вот от меня о об еще
нет из ему ли если или ни быть был была были него до вас нибудь вам ведь там потом себя ей они тут где есть надо ней
для мы тебя их чем чего сам чтоб чтобы без будто тоже себе под будет при кто этот эта это эти этого этой этом этому
этих этим того тому том той тех тем какой какая какое какие какого каком какую каких зачем почему когда куда откуда
сколько чей чья чье чьи мой моя мое мои моего моей моем твой твоя твое твои твоего твоей твоем наш наша наше наши ваш
ваша ваше ваши свой своя свое свои своего своей своем нее них ним нем мной тобой нам нами вами нас ими про через над
между
"""

STOP_WORDS: Final = frozenset((_ENGLISH + _RUSSIAN).split())

# Verbs in the order of their use, then nouns and adjectives; the first form of a line stands for all.
_FORMS: Final = """
go goes went gone
come came
see saw seen
take took taken
get got gotten
make made
give gave given
find found
think thought
tell told
say said
know knew known
become became
leave left
feel felt
bring brought
begin began begun
keep kept
hold held
write wrote written
stand stood
hear heard
mean meant
meet met
run ran
pay paid
sit sat
speak spoke spoken
lead led
grow grew grown
lose lost
fall fell fallen
send sent
build built
understand understood
draw drew drawn
break broke broken
spend spent
rise rose risen
arise arose arisen
drive drove driven
buy bought
wear wore worn
choose chose chosen
eat ate eaten
teach taught
catch caught
sing sang sung
swim swam swum
fly flew flown flies
sleep slept
win won
sell sold
show shown
ride rode ridden
throw threw thrown
forget forgot forgotten
forgive forgave forgiven
fight fought
drink drank drunk
wake woke woken
steal stole stolen
hide hid hidden
bite bit bitten
blow blew blown
feed fed
lend lent
shake shook shaken
shoot shot
sink sank sunk
stick stuck
strike struck
swear swore sworn
sweep swept
swing swung
tear tore torn
bend bent
bleed bled
deal dealt
dig dug
dream dreamt
freeze froze frozen
hang hung
kneel knelt
lay laid
learn learnt
seek sought
child children
man men
woman women
person people
foot feet
tooth teeth
mouse mice
goose geese
wife wives
knife knives
shelf shelves
good better best
bad worse worst
идти иду идешь идет идем идете идут шел шла шло шли
пойти пойду пойдешь пойдет пойдем пойдете пойдут пошел пошла пошло пошли
прийти приду придешь придет придем придете придут пришел пришла пришло пришли
уйти уйду уйдешь уйдет уйдем уйдете уйдут ушел ушла ушло ушли
найти найду найдешь найдет найдем найдете найдут нашел нашла нашло нашли
ехать еду едешь едет едем едете едут
переехать перееду переедешь переедет переедем переедете переедут
поехать поеду поедешь поедет поедем поедете поедут
приехать приеду приедешь приедет приедем приедете приедут
есть ем ешь ест едим едите едят ел ела ели
любить люблю
человек люди людей людям людьми людях
ребенок дети детей детям детьми детях ребенка ребенку ребенком
друг друзья друзей друзьям друзьями друзьях
брат братья братьев братьям братьями братьях
сын сыновья сыновей сыновьям сыновьями сыновьях
дочь дочери дочерью дочерей дочерям дочерями дочерях
мать матери матерью матерей матерям
год года году годом лет годы годам годами годах
день дня дню днем дни дней дням днями днях
хороший лучше лучший лучшая лучшее лучшие
плохой хуже худший худшая худшее худшие
"""

IRREGULAR: Final = {
    form: forms[0] for forms in (line.split() for line in _FORMS.strip().splitlines()) for form in forms[1:]
}
