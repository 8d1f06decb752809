"""What the lexical guard knows of English. Data only: how it is read is in `guard_lexicon`.

A line of SYNONYMS holds words and phrases that a question may swap without asking for another answer; a line of
ANTONYMS, two sides that never mean the same. Inflected forms need no entry: words are compared by their stems.
"""

from __future__ import annotations

from typing import Final

# Words that carry no content of their own. Prepositions that give a word its role are in MARKERS instead.
FUNCTION: Final = """
a an the this that these those there here it its itself
is are was were be been being am do does did done doing have has had having
can could may might would should shall will must ought gonna
my mine myself your yours yourself our ours ourselves ones one's oneself
and or also too so then well but yet
'm 're 've 'll 'd 's im ive youre theyre thats whats hows heres s t
any some such very really actually just please pls plz kindly hi hello hey thanks thank ok okay
as which whose whom whether whenever
"""

# They are left out as often as not, but "I owe him" is not "he owes me".
PRONOUNS: Final = """
i me
you
we us
"""

# Words that may be there or not: how one asks, and words that say what is plain already.
FILLERS: Final = """
way ways method methods approach step steps procedure process manner means
tell explain describe know learn understand want wanna need like wish wonder wondering looking curious asking question
suggest recommend advise clarify elaborate outline
possible able acceptable allowed permitted okay define anyway ever even still again already yet maybe perhaps else
someone somebody anyone anybody everyone everybody folks
thing things something anything stuff kind kinds sort sorts
exactly precisely basically simply generally usually typically normally commonly currently now nowadays right
briefly shortly info information idea mean means
called named known
much many lot lots bit
their them they themselves
supposed gonna actual own anymore
ok fine
truly literally honestly essentially specifically particularly especially
"""

# Words that say little by themselves: light verbs, and nouns for the sort of thing that another word names already. One
# text may have them where the other has none; one of them in the place of another is still a difference.
LIGHT: Final = """
make take get give put bring come go keep let set do have use look see say work run turn try
find list help provide mention happen feel seem become mean think believe expect consider decide ask talk need
phrase expression word words term terms concept definition sentence saying
movie film book song series game play band album
file files document command function field option options button page screen program app application tool software
item items object product products brand company business firm service
city town country state place places location area region
person people individual human guy
time times date day moment
name type types version model number amount level rate total
best good ideal right proper
example examples tip tips guide tutorial instruction instructions advice list
simple easy quick short detail details
way route path
home order pot oven part point rule fact case
every each all whole more other another
return value exist eat drink wear consume contain include live
language
experience problem issue
currency
system device machine
there
main major important various basic skill skills
properly correctly effectively successfully efficiently completely fully entirely totally
"""

# A preposition gives the word after it a role; words of one line give the same role.
MARKERS: Final = """
from, out of
to, into, towards, toward, onto
than, compared to, compared with
before, until, till, prior to
after, since
by
with, using, via, through
for
as
in, inside, within, at, on
out, outside of
off
up
down
about, regarding, concerning
against
between, among
under, below, beneath, less than, fewer than
over, above, more than
behind
like
during, while
because, due to
if
of
instead of, rather than
"""

QUESTIONS: Final = """
what: what, which, what's, whats
who: who, whom, who's, whos, which person
when: when, what year, which year, in what year, in which year, what date, which date, on what date, what time
when: at what time
where: where, where's, wheres, what place, which place, in what place
why: why, how come, what is the reason, what are the reasons, for what reason, what makes, what for, reason why
why: reasons why, what was the reason, what were the reasons
why: what's the reason, what's the cause, what is the cause, what causes, what causing
how: how, how's, hows, in what way, what way, what is the way, what's the way, what is the best way, best way
many: how many, how much, what number of, what amount of
"""

# What a "what" may ask for, so that it asks the same as another question word.
ASKED: Final = """
why: cause, reason, purpose, point, explanation
when: date, day, year, month, time, century
where: place, location, site, spot, address, channel
who: person, author, inventor, company, name, president, owner, director, winner, actor, singer
many: price, number, salary, population, worth, rate, level, maximum, minimum, size, height, weight, age, distance
many: speed
many: amount, temperature, length, percentage, difference, limit, balance, total, sum, average, count, score
many: probability
"""

# Phrases with a negation in them that deny nothing: how one asks.
POLITE: Final = """
do n't know, do n't understand, not sure, or not, can n't figure out, do n't you, could n't you, will n't you
would n't mind
good morning, good evening, good afternoon, no idea, is n't it, not only
show me, give me, tell me, let me know, help me
what should i do, what can i do, what do i do, how do i do that, how do i do this, how do i do it, how can i do that
what to do, what can be done, what do i have to do, is there a way
i looking for, i am looking for, step by step, in simple terms
in detail, in general, in short, for me, to me, do i need to, i 'd like to, i would like to, these days, right now
every time, each time, right now, at the moment, these days, at present, as of now, the other way round
the other way around
"""

# Words that are no misspelling of another that is known here, though one letter apart.
NOT_MISSPELT: Final = """
addiction addictions addictive altercation anonymous archrival barley bleaching bookmaker calculus careers caries
celerity cleansing closets closet coding codding coking commonality competed competing complected compliant complied
composted composting coning coping counties county crackling cremate cremating crouching deceased deign denise depleting
depletion deprivation depriving dessert desserts diners emirates energizes excerpt expiation feathered flounder forrest
gradation habituation handel hardiness lightning litters loosing looping malinger mediated mediating mediation mediator
meditation medication minuet mousse mousses overlaying overheating pampering patent patently perspective prospective
personalty pervious planed posses powdering prated predicated predicating predication presentment programmer
quadrupole recoding redstarts reigning remainder remainders reorder replaying restated retried retuning sacred satin
satins scarred seediness sentience settling shuttling signer slickness slitting smoothie soldered soothing spitting
stared startling stinging straining stranding streaming supers testees thrashing tilted topically toping treading
underlying varnish varnished wagging wakening warranted winning wining diverse inverse adverse averse causal casual
martial marital trial trail angel angle diary dairy quite quiet statue status statute united untied silver sliver
"""

NEGATORS: Final = """
not no n't never none nobody nothing neither nor cannot cant dont doesnt didnt isnt arent wasnt werent wont wouldnt
shouldnt couldnt havent hasnt hadnt aint mustnt neednt hardly barely without
fail fails failed failing unable refuse refuses refused
"""

# Each is a negation of its own: "without" and "except" are not undone by a second "not".
EXCEPTIONS: Final = """
except, excluding, other than, apart from, aside from, but not, besides
unless
only, solely, exclusively
including
"""

SYNONYMS: Final = """
tear down, demolish, pull down, knock down
change, move, switch, reschedule
change, update, edit, modify, alter, adjust
strike, hit
likely, likelier, more likely
cheap, inexpensive, affordable, low-cost
trip, journey, travel, tour
request, ask for, apply for
choose, pick, select, decide on
show, display
check, verify, confirm, see, find out
find, locate, look for, search
watch, view
stop from, keep from, prevent from
hurt, ache, pain, painful, sore
quit, give up, stop doing, stop
gain weight, put on weight
connect, link, attach, hook up, pair
disconnect, unlink, detach
close, shut
shut down, turn off, power off, switch off
hurry, rush
wash, clean, launder
stop working, not work, broken
error message, error
improve, better, boost, enhance, get better, increase
cancel, call off, terminate
wake up, get up
weird, strange, odd
error, bug, problem, issue, trouble
job, work, employment, occupation
salary, pay, wage, income
company, firm, business, employer
street, road
huge, giant, enormous
tiny, very small
rule, regulation, law
frequent, common, usual
symptom, sign
treat, treatment, cure, remedy, therapy
medicine, medication, drug, meds
headache, head ache
test, check, examine
sick leave, sick day
tv, telly, television
advantage, benefit, pro, upside
disadvantage, drawback, con, downside
kid, child, toddler
student visa, study visa
lid, cover
flight, plane ticket, airline ticket
load, read, import
dataframe, df
number of days, how many days
deadline, due date
distance, how far
height, how tall, how high
weight, how heavy, how much weigh
age, how old
depth, how deep
length, how long is
size, how big, how large
temperature, how hot, how cold
speed, how fast
create, add, new
damage, harm, hurt, bad, harmful, unhealthy, bad for you
move, relocate
flash, blink
how often, how frequently, frequency
all the time, constantly, continually, nonstop, always
combine, together, mix, mixed
launch, open
launch, start
turn on, start, start up, boot, boot up, power on
delete, clean up, clear out
route, way, path, directions, get
woman, female
man, male
gender, sex
wear, dress, put on, clothes, clothing, outfit
effect, affect, impact, influence
reach, get to, arrive at
convert, conversion, turn, change, transform
translate, translation, say, call
start, begin, commence
construct, construction, build, built
define, definition, meaning
int, integer
str, string
cactus, cacti
child, children, kid, kids
person, people, persons
analysis, analyses
lice, louse
leaf, leaves
medium, media
criterion, criteria
location, located, situated, where is
surgery, operation
physician, doctor
lawyer, attorney
purchase, buy, order
repair, fix, mend
rapidly, quickly, fast, swiftly
film, movie
taxi, cab
autumn, fall
holiday, vacation
apartment, flat
elevator, lift
sidewalk, pavement
truck, lorry
cellphone, cell phone, mobile phone, mobile, smartphone, phone
photo, photograph, picture, pic
vehicle, car, automobile
ill, sick
fridge, refrigerator
shop, store
garbage, trash, rubbish
sofa, couch
jail, prison
gasoline, petrol
football, soccer
where to buy, where to get, where to find, where can i buy, where can i get, where can i find, where do i find
where to buy, where do i buy, where do i get
slightly, a little, a bit, somewhat
acceptable, okay, ok, fine, allowed, permitted, all right, alright
architect, design, designer
formula, calculate
vaccinate, vaccination, vaccine, shot, jab
consequence, what happen if, happen if, what if, what happen when, what will happen if, what will happen when
origin, come from, originate, originally from
phrase, expression, saying, idiom
earn, make, salary, paid
work, function, operate
work, help, effective
stop working, broken, break
recover, get back, restore, retrieve
invite, add
bring, take, carry
document, paper, paperwork
reboot, turn off and on
turn up, raise, increase
turn down, lower, reduce, decrease
therapist, psychologist
boring, dull
interesting, fun, engaging
notify, inform, tell, let know, alert
abroad, overseas, foreign country
deal with, handle, cope with, manage
participant, member, attendee
mute, silence
decline, turn down, refuse, say no
expire, go bad, spoil, go off
spoiled, bad, off
brew, make
machine, maker
recommend, suggest, advise, should
beginner, newbie, novice, newcomer
programming, coding
program, code
memorize, remember, memorise
public transport, public transit, bus or train
license, licence
package, parcel
afford, pay for
teenager, teen, adolescent
communicate, talk
hack, hacked, compromised, breached
cabin bag, carry-on, hand luggage, carry on bag
luggage, baggage, suitcase
disappear, vanish, go missing
cursor, pointer
survive, live, stay alive
point, purpose, goal, use
exchange rate, conversion rate
restaurant, eatery, place to eat
train station, railway station
bus stop, bus station
neighbor, neighbour
cut, trim
pregnancy, pregnant
allergy, allergic
itch, itchy
fever, high temperature
cough, coughing
headache, head hurts, migraine
stomach ache, stomachache, stomach hurt, belly ache, tummy ache
nausea, nauseous
throw up, vomit
dizzy, lightheaded
blood pressure, bp
sugar, glucose
fat, overweight, obese
diet, eating plan
muscle, muscles
skin, complexion
hair loss, lose hair, balding, hair falling out
sunburn, sunburnt
apply, application, apply for
resume, cv, curriculum vitae
interview, job interview
hire, recruit, employ
quit job, resign, resignation, quit my job
raise, pay rise, salary increase, pay increase
vacation days, days off, leave
colleague, coworker, co-worker
client, customer
meeting, appointment
schedule, book, arrange, set up
reschedule, postpone, move, delay
book, reserve, reservation, booking
ticket, tickets
hotel, accommodation, place to stay
airport, terminal
rent, hire
landlord, property owner
deposit, down payment
mortgage, home loan, house payment
borrow, take out loan
invest, investing, investment
stock, share, stocks, shares
savings, savings account
bank account, account
credit card, card
transfer, send money, wire
withdraw, withdrawal, take out
spend, spending
budget, budgeting
debt, owe, owed
bankrupt, bankruptcy
lawsuit, sue, legal action
agreement, contract
will, testament
divorce, separate
argue, argument, fight
apologize, apologise, say sorry
lie, lying
lost, lose, missing, misplaced
steal, stolen, rob
crack, cracked, broken
leak, leaking, drip, dripping
noise, sound, loud
smell, odor, odour, scent
dirty, filthy
wet, damp
mold, mould
bug, insect
rat, mouse, mice, rodent
lawn, grass
garden, yard, backyard
tree, trees
flower, bloom, blossom
vegetable, veggie
chicken, hen
fish, fishes
refrigerate, fridge, refrigerator, keep cold, kept cold
freezer, frozen, freeze
oven, stove
pan, skillet, frying pan
defrost, thaw, unfreeze
leftovers, leftover
substitute, alternative, replacement, instead of, replace
ingredient, made of, made from, consist of
tasty, delicious, good tasting
spicy, hot
vegan, plant-based
calorie, calories
breakfast, morning meal
dinner, supper, evening meal
lunch, midday meal
snack, snacks
drink, beverage
alcohol, alcoholic
water, watering
hydrate, hydrated, stay hydrated
movie theater, cinema, movies
theater, theatre
actor, actress, star, play, role
sing, singer, song, sung
band, group
song, track
lyrics, words
game, match
score, result
team, club
champion, winner, win, won
record, records
player, athlete
coach, trainer
soccer, association football
holiday, public holiday, bank holiday
celebrate, celebration, observed
gift, present
party, celebration
wedding, marriage ceremony
baby, infant, newborn
toddler, small child
parent, parents
grandfather, grandpa, granddad
grandmother, grandma, granny
father, dad, daddy
mother, mom, mum, mommy
pet, pets
bird, birds
earth, planet earth
universe, cosmos
star, stars
moon landing, land on the moon
scientist, researcher
experiment, study
theory, hypothesis
energy, power
electric, electricity, power
engine, motor
fuel, gas, petrol, gasoline
tire pressure, tyre pressure
battery, batteries
drive, driving, driver
parking, park
traffic, congestion
accident, crash, collision
speed limit, maximum speed, how fast drive, how fast allowed
break, violate
fine, penalty, ticket
police, cops, officers
crime, offense, offence
prison, jail
vote, voting, cast ballot
election, elections
king, monarch
battle, fight
army, military
soldier, troops
independent, independence
border, boundary
mountain, peak
river, rivers
island, isle
forest, woods
desert, deserts
earthquake, quake
rain, rainy, raining, rainfall
snow, snowy, snowfall
sunny, sun
forecast, prediction, predict
clock, watch
calendar, schedule
alarm, wake up
reminder, remind
message, text, text message, dm
chat, conversation
group chat, group
block, ban
follow, subscribe
post, publish, upload
comment, reply
share, sharing
link, url, hyperlink
bookmark, favorite
browser, web browser
tab, tabs
window, windows
screen, display, monitor
printer, printing
charger, charging, charge
headphones, earphones, earbuds
speaker, speakers
camera, webcam
volume, loudness, sound level
brightness, bright
screenshot, screen capture, capture screen, take a screenshot, screen shot
copy, duplicate
paste, insert
cut, crop
rotate, turn
resize, change size, scale
undo, revert, roll back
font, typeface
row, line
column, columns
cell, cells
sheet, spreadsheet
chart, graph, diagram
formula, equation
sort, order, arrange
filter, filtering
search, look up, query
count, number of
sum, add up, total
multiply, times
divide, split
round, rounding
square root, root
derivative, differentiate
integral, integrate
probability, chance, likelihood, odds, likely
variable, variables
loop, iterate, loop over, loop through, iterate over, traverse
method, function
parameter, argument
exception, error, throw, thrown
import, include
compile, build
run, execute
debug, troubleshoot
deploy, deployment, ship, release
server, host
port, ports
response, reply
endpoint, route, url
authenticate, authentication, log in, login
authorize, authorization, permission
encrypt, encryption
hash, hashing
commit, commits
branch, branches
merge, merging
revert, undo, roll back
container, containers
image, picture
cache, caching
queue, queues
thread, threads
memory, ram
cpu, processor
disk, drive, storage
hard drive, hard disk
slow, sluggish, laggy
freeze, hang, stuck, frozen, unresponsive
virus, malware
spam, junk
privacy, private
two-factor authentication, 2fa, two-step verification, 2 factor authentication
file size, size
format, file type
compress, shrink
zip, archive
extract, unzip, unpack
read, load, open
parse, parsing
regex, regular expression, regexp
json, javascript object notation
summarize, summary, summarise, sum up, tldr
translate, translation
rewrite, rephrase, reword, paraphrase
proofread, check grammar, correct grammar
essay, paper
synonym, another word
antonym, opposite
plural, plural form
spell, spelling, spelled
grammar, grammatical
sentence, phrase
quote, quotation
joke, funny
poem, verse
story, tale
title, heading, headline
speech, talk, presentation
teach, show how
lesson, class
homework, assignment
grade, mark, score
student, pupil
scholarship, grant
degree, diploma
kindergarten, preschool
graduate, graduation
practice, practise, train
skill, ability
habit, routine
motivated, motivation
stress, stressed
anxiety, anxious, nervous
sad, depressed, unhappy
lonely, alone
shy, introverted
confident, confidence, self-confidence
relax, calm down, unwind
meditate, meditation
breathe, breathing
jog, run, running
push-up, pushup, press-up
sit-up, situp
stretch, stretching
swim, swimming
bike ride, cycling, cycle
hike, hiking
camp, camping
tent, tents
beach, seaside
museum, gallery
sights, attractions, things to see, places to see, see, places to visit, things to do
souvenir, souvenirs
visa, visas
passport, passports
customs, border control
declare, declaration
immigration, immigrate
citizen, citizenship, national
embassy, consulate
flight time, flight duration, how long flight
layover, stopover, connection
window seat, seat by window
delay, delayed, late
track, tracking, where is
wrong item, incorrect item
complaint, complain
feedback, review
cancel subscription, unsubscribe, end subscription
change password, reset password, new password
forgot password, lost password
payment method, way to pay
promo code, coupon, discount code, voucher
receipt, proof of purchase
warranty, guarantee
exchange, swap
tall, height
oldest, most ancient
richest, wealthiest
fastest, quickest
smallest, tiniest
more, greater, higher
begin, kick off
kick in, take effect, start working
stand for, abbreviation of, mean
belong to, own, owner
declare, report
hit, strike, struck
early, earlier
arrive, get there, come
last, go on
enough, plenty
entire, whole, all
at home, home
fall, collapse, torn down, tear down
fast, quick, quickly, soon, rapid, rapidly, speedy, swiftly
big, large, huge
small, little, tiny
cheap, inexpensive, affordable, low cost, low-cost, budget
expensive, costly, pricey
price, cost, costs, fee, charge, how expensive, pay for
best, greatest, top, finest, optimal, ideal, most effective
good, great, nice, decent, effective
bad, poor
easy, easily, simple, simply, straightforward, effortless, effortlessly
hard, difficult, tough, challenging
important, essential, crucial, vital, significant, key
main, primary, principal, chief, major
start, begin, commence, get started, launch
end, finish, conclude, complete
stop, quit, cease, halt, give up
make, create, build, produce, generate, construct, prepare
write, compose
cook, prepare
fix, repair, solve, resolve, troubleshoot, correct, sort out, remedy
remove, delete, erase, get rid of, eliminate, take out, wipe, uninstall, clear
remove, get rid of, get off, get out, take off, take out, eliminate, lose
buy, purchase, order
sell, vend
obtain, acquire, receive, get
change, modify, alter, edit, adjust, update, switch
replace, substitute, swap
improve, enhance, boost, get better
reduce, decrease, lower, lessen, cut, cut down, bring down, minimize, minimise, diminish, drop
grow, rise, go up
convert, transform, turn into, change into
connect, link, pair, hook up
disconnect, unlink, unpair
join, merge, combine, concatenate
split, divide, separate
choose, select, pick, decide on
find, locate, discover, search for, look for
check, verify, test, determine, tell if, make sure, see if
calculate, compute, work out, figure out
install, set up, setup, set-up
configure, set, adjust
turn on, enable, activate, switch on, set up
turn off, disable, deactivate, switch off, shut off
open, unlock
close, shut
shut down, power off
log in, login, sign in, log on, log into, sign into
log out, logout, sign out, log off
sign up, register, registration, enroll, create account
cancel, terminate, call off
send, deliver, ship, mail
show, display, print
hide, conceal
save, store, keep
travel, trip, journey, go
flight, fly, plane, airplane
car, automobile, vehicle
phone, telephone, cellphone, smartphone, mobile
mobile, cell
call, ring, phone
computer, pc
laptop, notebook
photo, photograph, picture, image, pic
film, movie
tv, television
bike, bicycle
doctor, physician
lawyer, attorney
child, kid, children
teacher, instructor
job, employment, position
work, career, profession
salary, wage, wages, pay, earnings
money, cash
company, firm, business, corporation
shop, store
house, home
apartment, flat
street, road
town, city
country, nation
begin, start
illness, disease, sickness
sick, ill
symptom, sign
medicine, medication, drug
cure, treat, treatment, heal, remedy
pain, ache, hurt
cause, causes, lead to, result in, trigger, reason, bring about, responsible for, source
result, outcome, consequence, effect
happen, occur, take place, take place
benefit, advantage, pro, upside
drawback, disadvantage, con, downside
problem, issue, trouble
error, bug, fault
difference, distinction, differ, different, distinguish
similar, alike, comparable
same, identical
popular, well-known, famous
author, writer, wrote, written
invent, inventor, invented
discover, discoverer
paint, painter
compose, composer
direct, director
founded, founder, establish, establishment
capital, capital city
population, inhabitants, how many people live, how many people are, number of people, number of inhabitants, residents
age, how old
height, how tall, how high, tall, high
length, how long
weight, how heavy, weigh, heavy
distance, how far
size, how big, how large
speed, how fast, velocity
duration, how much time, how long, time it take
temperature, how hot, how warm
frequency, how often, how many times
lifespan, life expectancy, how long live
price, how much money, how much does it cost, how much is, how much are
daily, per day, a day, every day, each day
weekly, per week, a week, every week
monthly, per month, a month, every month
yearly, annually, per year, a year, every year, annual
depth, deep, how deep
width, wide, how wide
area, surface area
birthday, birthdate, date of birth, birth date, born
die, death, pass away, passed away, dead
kill, murder, assassinate
marry, marriage, wed, wedding, get married
wife, spouse
trip, journey, voyage, tour
holiday, vacation
bake, oven-bake
boil, boiling
freeze, freezing
recipe, make, cook, prepare, brew
meal, dish, food
healthy, healthful, good for health, good for you
lose weight, slim down, drop pounds, shed pounds, weight loss
exercise, workout, work out
sleep, fall asleep
tired, exhausted
happy, glad, joyful
angry, mad, furious
scared, afraid, frightened
smart, intelligent, clever, bright
rich, wealthy
poor, impoverished
beautiful, pretty
old, ancient, aged
new, recent, latest, newest, current, modern
true, correct, right, accurate
false, wrong, incorrect
safe, secure, safely
dangerous, risky, hazardous, unsafe, harmful
legal, lawful, allowed by law, permitted
illegal, unlawful, against the law
free, free of charge, at no cost, no cost, gratis, for free, complimentary
often, frequently, regularly
rarely, seldom
always, at all times
immediately, right away, at once, instantly
approximately, about, around, roughly, circa
nearly, almost
maximum, max, limit, upper limit, at most, no more than, highest
minimum, min, lower limit, at least, no less than, lowest
average, mean
function, method
argument, parameter
folder, directory
app, application, program, software
website, site, web site, webpage, web page
internet, web, online
e-mail, email, mail
password, passcode
username, user name
account, profile
wi-fi, wifi, wireless
backup, back up
download, downloading
restart, reboot
crash, crashing
number, figure
dictionary, dict
database, db
environment, env
repository, repo
directory, dir
document, doc
javascript, js
typescript, ts
postgresql, postgres
kubernetes, k8s
operating system, os
artificial intelligence, ai
machine learning, ml
machine, device
united states, united states of america, usa, us, u.s., u.s.a., america, the states
american, us-american
united kingdom, uk, u.k., great britain, britain
european union, eu
new york, new york city, nyc, ny
los angeles, la
san francisco, sf
washington dc, washington d.c.
world war one, world war i, ww1, wwi, first world war, world war 1
world war two, world war ii, ww2, wwii, second world war, world war 2
soviet union, ussr
united nations, un
television, tv
university, college
high school, secondary school
exam, test, examination
study, learn, master, studying
teach, instruct, educate
speak, talk
english language, english
answer, reply, respond, response
ask, inquire
request, ask for
help, aid, assist
allow, permit, let
forbid, prohibit, ban
require, necessary, need, required, mandatory, obligatory
enough, sufficient
increase, raise, grow
colour, color
favourite, favorite
centre, center
litre, liter
metre, meter
organise, organize
tyre, tire
grey, gray
aluminium, aluminum
whole, entire, complete
begin, initiate
tall, high
prevent, avoid, keep from, stop from
protect, guard
own, possess
contain, include, have
amount, quantity
visit, see
leader, head, ruler, leads, in charge
president, head of state
boss, manager
currency, money used
located, situated, location, lie, place
near, close to, nearby, next to
tallest, highest
longest, lengthiest
biggest, largest, greatest
translate, translation, say
pronounce, pronunciation, say
meaning, mean, stand for, definition, signify
abbreviation, acronym, short for, stand for
employ, hire
retire, retirement
refund, money back, reimbursement, get money back
return, send back, give back
deliver, delivery, shipping
track, trace, follow
invoice, bill
pay, payment
subscribe, subscription
discount, price reduction
warranty, guarantee
contact, reach, get in touch, get in touch with, get hold of
customer support, customer service, support team, support
opening hours, hours, business hours, open hours
nearest, closest
weather, forecast
tax, taxes
insurance, coverage
grow, cultivate, raise
plant, planting
clean, wash, cleaning
stain, spot
dog, puppy
cat, kitten
highest, greatest
largest, biggest, greatest
money, funds
overcome, conquer, get over
develop, create, build, make
prevent, avoid, stop
opinion, view, viewpoint, thought, think
job, career, profession
girl, lady
webpage, web page, page
join, enroll, enrol, enter
use, utilize, utilise
give, provide, offer
keep, maintain, retain
try, attempt
real, genuine
fake, counterfeit
minimum, lowest
law, legislation
supervisor, manager, superior
worker, staff
error, mistake
earn, gain
technique, method
ability, capability
topic, subject
dead, deceased
born, birth
hate, dislike
anxiety, anxious
hill, mountain
motorcycle, motorbike
airplane, aeroplane, plane, aircraft
rich, affluent, wealthy
loud, noisy
continue, proceed, keep going
quit, resign
boss, superior
bug, glitch
login, signin, sign in, log in
danger, risk
defend, protect
gauge, measure
clarify, explain
describe, depict
remember, recall
idea, notion
church, chapel
cat, kitty
tired, sleepy, exhausted
slim, thin, skinny
boyfriend, bf
girlfriend, gf
friend, buddy, pal
election, vote
cheat, deceive, trick
sometimes, occasionally
middle, center, centre
reward, prize, award
competition, contest, tournament
goal, target, aim
achieve, accomplish
motivate, inspire, encourage
motivation, inspiration
convince, persuade
boring, tedious
exciting, thrilling
interesting, fascinating
amazing, awesome, great, excellent
terrible, awful, horrible, bad
nice, pleasant
rude, impolite
polite, courteous
brave, courageous
stupid, dumb, silly
crazy, insane
rare, uncommon
multiple, several, various
enough, adequate, sufficient
main, major
what happen when, what happen after
"""

ANTONYMS: Final = """
much, many / little, few
stop, quit / continue, resume, start
check in / check out
like, love / dislike
accept, include / exclude
extend, lengthen / shorten
strengthen, support / suppress, weaken
thicken / thin
over / under
top / bottom
married, marry / divorce
overweight / underweight
inhale / exhale
agree / disagree
appear, appearance / disappear, disappearance
success / failure
sit / stand
laugh / cry
wake up / fall asleep
put on / take off
pick up / drop off
speed up / slow down
warm up / cool down
zoom in / zoom out
sign in / sign out
fade in / fade out
turn up / turn down
get in, get on / get out, get off
move in / move out
opt in / opt out
break up / get together
grow / shrink
expand / contract
rise / set
frontend / backend
serial / parallel
mutable / immutable
lossy / lossless
hit / miss
guilty / innocent
heaven / hell
rural / urban
civilian / military
theory / practice
physical / mental, digital, virtual
natural / artificial, synthetic
wholesale / retail
fixed / variable
primary / secondary
direct, directly / indirect, indirectly
active / passive
mild / severe
acute / chronic
benign / malignant
dominant / recessive
organic / inorganic
soluble / insoluble
renewable / nonrenewable
voluntary / involuntary
wild / domestic, tame
tropical / polar
more / less
more / fewer
most / least
increase, rise, raise, gain, boost / decrease, reduce, lower, fall, lose, drop
better, improve / worse, worsen, deteriorate
best / worst
good / bad
big / small
high, higher, tall / low, lower, short
highest, largest, maximum / lowest, smallest, minimum
long, longest / short, shortest
fast / slow, slowly
old, oldest, older / new, young, youngest, younger, newest
hot, warm / cold, cool
heat / cool, freeze
hottest, warmest / coldest, coolest
cheap, cheaper, cheapest / expensive, dearest
easy, easiest / hard, hardest
light / heavy, dark
strong, stronger, strongest / weak, weaker, weakest
rich / poor
hard / soft
wet / dry
clean / dirty
full / empty
open / close
start / stop, end, finish
first, earliest / last, latest
early, earlier / late, later
before / after
above / below, under
over / under
up, upper / down, lower
upstairs / downstairs
left / right
top, upper / bottom
front / back, rear
inside, inner, indoor / outside, outer, outdoor
internal / external
in / out
on / off
near / far
nearest / farthest, furthest
north, northern / south, southern
east, eastern / west, western
buy / sell, rent
import / export
input / output
upload / download
push / pull
send / receive
give / take
lend / borrow
lender / borrower
employ / fire, unemploy
arrive, arrival / depart, departure, leave
come / go
enter, entrance, entry / exit, leave
win, winner / lose, loser
pass / fail
accept, approve / reject, refuse, deny, decline
allow / forbid, ban, block, deny
love / hate
like / dislike
attack / defend, defense, defence
add / remove, subtract
addition / subtraction
multiply, multiplication / divide, division
credit / debit
profit / loss
income, revenue / expense, expenditure
asset / liability
supply / demand
male, man, boy, father, husband / female, woman, girl, mother, wife
son, brother, king, uncle / daughter, sister, queen, aunt
husband / wife
he / she
his / her
day / night
morning / evening
winter / summer
sunrise / sunset
alive, living / dead
birth, born / die, death
birthday / die
create / destroy, remove
build / demolish, destroy
install / remove
turn on / turn off
lock / unlock
close / open
log in / log out
sign up / cancel, unsubscribe
subscribe / unsubscribe
connect / disconnect
attach / detach
mute / unmute
follow / unfollow
block / unblock
show / hide
expand / collapse
encrypt / decrypt
encode / decode
compress, zip / decompress, extract, unzip
lock / unlock
mount / unmount
commit / rollback, revert
push / pop
ascending / descending
ascend / descend
horizontal, horizontally / vertical, vertically
row / column
public / private
local / remote, global
client / server
frontend / backend
synchronous / asynchronous
static / dynamic
hardware / software
online / offline
true / false
positive / negative
even / odd
odd / even
plus / minus
maximum / minimum
always / never
often / rarely
all, every / some, none, any
everything / nothing
both / neither
same / different
similar / difference
benefit / drawback, risk, harm
strength / weakness
advantage / disadvantage
safe / dangerous
friend / enemy
hero / villain
ancestor / descendant
parent, mother, father / child, son, daughter
teacher / student, pupil
doctor / patient
employer / employee
landlord / tenant
buyer, customer / seller
predator / prey
cause / effect, prevent, cure
question / answer
problem / solution
ancient / modern
war / peace
freedom / slavery
success, succeed / failure, fail
war / peace
liquid / solid, gas
acid / base, alkaline
cathode / anode
proton / electron
artery / vein
inhale / exhale
sympathetic / parasympathetic
vertebrate / invertebrate
herbivore / carnivore
import / export
immigrant, immigrate, immigration / emigrant, emigrate, emigration
explicit / implicit
include, inclusive / exclude, exclusive
optimist / pessimist
odd / even
major / minor
majority / minority
lend / borrow
teach / learn
speak / listen
read / write
ask / answer
past / future
yesterday / tomorrow
ahead / behind
forward, forwards / backward, backwards, back
clockwise / counterclockwise, anticlockwise
tighten / loosen
fill / empty
freeze / melt, thaw, unfreeze, boil
boil / freeze
sweet / sour, bitter, salty
sharp / blunt, dull
thick / thin
wide / narrow
deep / shallow
quiet / loud
rough / smooth
raw / cooked
sick / healthy
wake / sleep
remember / forget
find / lose
save / spend
save / discard
deposit / withdraw
hire / fire
promote / demote
encourage / discourage
praise / criticize
support / oppose
permanent, permanently / temporary, temporarily
automatic, automatically / manual, manually
required / optional
formal / informal
simple / complex, complicated
single / married, multiple
singular / plural
temporary / permanent
domestic / foreign, international
urban / rural
minimum / maximum
nominal / real
gross / net
inflation / deflation
bull / bear
long / short
"""

# Words that name the same numbers.
NUMBERS: Final = """
0 zero
1 one once single
2 two twice double couple pair
3 three thrice triple
4 four quadruple
5 five
6 six
7 seven
8 eight
9 nine
10 ten
11 eleven
12 twelve dozen
13 thirteen
14 fourteen
15 fifteen
16 sixteen
17 seventeen
18 eighteen
19 nineteen
20 twenty
30 thirty
40 forty fourty
50 fifty
60 sixty
70 seventy
80 eighty
90 ninety
100 hundred hundreds
1000 thousand thousands k
1000000 million millions mln
1000000000 billion billions bn
1000000000000 trillion trillions
0.5 half
0.25 quarter
"""

ORDINALS: Final = """
1 first 1st
2 2nd
3 third
4 fourth
5 fifth
6 sixth
7 seventh
8 eighth
9 ninth
10 tenth
11 eleventh
12 twelfth
13 thirteenth
14 fourteenth
15 fifteenth
16 sixteenth
17 seventeenth
18 eighteenth
19 nineteenth
20 twentieth
21 twenty-first
30 thirtieth
"""

# dimension factor: names. A quantity is compared in its base, so 90 minutes are 1.5 hours.
UNITS: Final = """
time 1: second seconds sec secs
time 0.001: millisecond milliseconds ms
time 0.000001: microsecond microseconds us µs
time 0.000000001: nanosecond nanoseconds
time 60: minute minutes min mins
time 3600: hour hours hr hrs h
time 86400: day days
time 604800: week weeks wk
month 1: month months
month 12: year years yr yrs yo year-old
month 120: decade decades
month 1200: century centuries
length 1: meter meters metre metres m
length 1000: kilometer kilometers kilometre kilometres km kms
length 0.01: centimeter centimeters centimetre centimetres cm
length 0.001: millimeter millimeters mm
length 0.000001: micrometer micrometers micron microns
length 0.000000001: nanometer nanometers nm
mile 1: mile miles mi
inch 1: inch inches
inch 12: foot feet ft
inch 36: yard yards yd
mass 1: gram grams g gramme grammes
mass 1000: kilogram kilograms kg kgs kilo kilos
mass 0.001: milligram milligrams mg
mass 0.000001: microgram micrograms mcg
mass 1000000: tonne tonnes
ton 1: ton tons
pound 1: pound pounds lb lbs
ounce 1: ounce ounces oz
stone 1: stones
volume 1: liter liters litre litres l
volume 0.001: milliliter milliliters millilitre ml
gallon 1: gallon gallons gal
pint 1: pint pints
quart 1: quart quarts
cup 1: cup cups
tablespoon 1: tablespoon tablespoons tbsp
teaspoon 1: teaspoon teaspoons tsp
celsius 1: celsius °c c° centigrade
fahrenheit 1: fahrenheit °f f°
kelvin 1: kelvin kelvins
degree 1: degree degrees °
radian 1: radian radians
percent 1: percent % percents pct percentage
byte 1: byte bytes
byte 1000: kilobyte kilobytes kb
byte 1000000: megabyte megabytes mb
byte 1000000000: gigabyte gigabytes gb gigs gig
byte 1000000000000: terabyte terabytes tb
bit 1: bit bits
bit 1000: kbps kilobit kilobits
bit 1000000: mbps megabit megabits
bit 1000000000: gbps gigabit gigabits
hertz 1: hz hertz
hertz 1000000: mhz megahertz
hertz 1000000000: ghz gigahertz
watt 1: watt watts w
watt 1000: kilowatt kilowatts kw
watthour 1000: kwh kilowatt-hour kilowatt-hours
volt 1: volt volts v
ampere 1: amp amps ampere amperes
joule 1: joule joules
calorie 1: calorie calories cal
kilocalorie 1: kcal kilocalorie
newton 1: newton newtons
pascal 1: pascal pascals
pascal 100000: bar bars
psi 1: psi
atmosphere 1: atm
horsepower 1: hp horsepower
mph 1: mph
kmh 1: kmh km/h kph
knot 1: knots
acre 1: acre acres
hectare 1: hectare hectares
dollar 1: dollar dollars $ usd bucks
dollar 0.01: cent cents
euro 1: euro euros € eur
sterling 1: £ gbp quid
ruble 1: ruble rubles rouble roubles ₽ rub
yen 1: yen ¥ jpy
yuan 1: yuan cny rmb renminbi
rupee 1: rupee rupees ₹ inr
franc 1: franc francs chf
bitcoin 1: bitcoin bitcoins btc
ethereum 1: ethereum eth
"""

# Those of two words whose first is a unit, too.
UNIT_PHRASES: Final = """
percentage-point 1: percentage point, percent point
percentage-point 0.01: basis point
"""

# Lines of one date each. A capital letter stands where the lower case is another word too.
DATES: Final = """
january jan
february feb
march
april apr
May
june jun
july jul
august aug
september sept sep
october oct
november nov
december dec
monday mondays Mon
tuesday tuesdays tue tues
wednesday wednesdays Wed
thursday thursdays thu thurs
friday fridays fri
saturday saturdays Sat
sunday sundays Sun
today todays
yesterday yesterdays
tomorrow tomorrows
tonight
weekend weekends
weekday weekdays
morning mornings
noon midday
afternoon afternoons
evening evenings
night nights nighttime
midnight
spring
summer
autumn
winter
am a.m
pm p.m
bc bce
ago
last previous past
next upcoming following
christmas xmas
easter
halloween
thanksgiving
"""

# A country and its people: one asks for the same with either.
DEMONYMS: Final = """
france french
spain spanish
germany german
italy italian
japan japanese
china chinese
greece greek
netherlands dutch holland
poland polish
turkey turkish
sweden swedish
switzerland swiss
denmark danish
ireland irish
wales welsh
scotland scottish
england english
britain british
mexico mexican
canada canadian
brazil brazilian
argentina argentinian
norway norwegian
finland finnish
portugal portuguese
russia russian
ukraine ukrainian
india indian
korea korean
vietnam vietnamese
thailand thai
egypt egyptian
iraq iraqi
iran iranian
israel israeli
hungary hungarian
austria austrian
australia australian
europe european
africa african
asia asian
belgium belgian
"""
