"""Sentences with marked slots, by kind of text.

Gold is what stands in these: `{PF}` a person in full, `{PG}` by the given name, `{PL}` by the family name, `{PS}` by
title and family name, `{PU}` the speaker of a turn in capitals; `{C}` a firm, `{O}` another organisation, `{X}` either;
`{J}` a project, `{A}` an account, `{L}` a place; and the same with `H` before it in Han and Hangul. No gold: `{D}` a
date, `{N}` a number, `{R}` a person's role, `{W}` a word with a capital that names none of these. Nothing else in a
template is a name.
"""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


NEWS = _lines(
    """{PF}, {R} at {X}, told {O} on {D} that talks in {L} had failed.
    The {O} said in a statement that {N} people were injured near {L}.
    Police in {L} arrested {PF}, {N}, after a complaint by {X}.
    {X} will cut {N} jobs in {L} and {L}, the firm announced in {D}.
    "We did not expect this," said {PL}. "Nobody in {L} did."
    According to {O}, exports from {L} to {L} rose by {N} percent in {D}.
    {PF} defeated {PF} in the final of the {W} in {L}.
    President {PL} met Prime Minister {PL} in {L} to discuss {W}.
    A spokesperson for {X} declined to comment.
    Residents of {L} have complained about the noise since {D}.
    The {O} ruled against {X} by a vote of {N} to {N}.
    Speaking to {O}, {PS} called the report misleading.
    {PF} of the {O} was the first to publish the figures.
    The storm reached {L} early on {D}, and moved on towards {L}.
    Shares of {C} fell {N} percent after {C} withdrew its offer.
    The flight from {L} to {L} was diverted to {L}.
    {X}, {X} and {X} have signed the agreement; {X} has not.
    Local officials blamed the fire on old wiring.
    The minister promised more money for schools, but gave no date.
    In {L}, thousands marched against the new law on {D}.
    {PF} was born in {L} and studied at {O} before joining {X}.
    Authorities in {L}, {L} say that {PL} had acted alone.
    {X}'s office in {L} was closed on {D}.
    {PL}, who leads {X}, denied the claims; {PL} repeated them.
    It was the largest demonstration in {L} since {D}.
    The ambassador of {L} to {L} left the meeting early.
    {O} reported {N} new cases in {L}, {N} in {L} and {N} in {L}.
    The film, directed by {PF}, opens in {L} on {D}."""
)
WIKI = _lines(
    """{PF} (born {N} {D}) is a writer and teacher from {L}.
    {L} is a town in {L}, about {N} kilometres south of {L}.
    {C} was founded in {N} by {PF} and {PF} in {L}.
    {PL} graduated from {O} in {N} and moved to {L}.
    The {W} was first described by {PF} in {N}.
    The company was bought by {C} for {N} million dollars and renamed {C}.
    {L} borders {L} to the north and {L} to the east.
    The building was designed by {PF}, who had also built the town hall of {L}.
    {O} is based in {L}; its chair is {PF}.
    His sister {PF} was a member of {O}.
    It flows through {L} and {L} before it reaches {L}.
    In {N} the family emigrated from {L} to {L}.
    The species is common in {L}, {L} and parts of {L}.
    The method became known in the {N}s and is still used.
    {PL} received the {W} in {N} for work on {W}.
    During {W} the factory made engines for {O}.
    The population was {N} at the last census.
    The {W} is a kind of bread that is eaten in {L}."""
)
COURT = _lines(
    """{PS} delivered the opinion of the {O}.
    The appellant, {PF}, was employed by {C} as a {R}.
    In {PL} v. {C}, the {O} held that notice was required.
    Counsel for {C}, {PF}, argued that section {N} did not apply.
    The contract was signed in {L} on {D}.
    {PS}, concurring: I agree with {PS} on the first question only.
    The trial court found for {PL}, and the {O} affirmed.
    The State of {L} bears the burden of proof.
    We reverse the judgment and send the case back.
    Mr. Chief Justice, and may it please the Court: this case is about notice.
    {C} moved to dismiss; the motion was denied on {D}.
    The property in {L} had been sold to {PF} in {N}.
    The question is whether the duty was owed at all, and to whom."""
)
INTERVIEW = _lines(
    """{PF}: Well, I grew up in {L}, so it was never far away.
    {PU}: How did you come to work for {X}?
    Interviewer: When did you leave {L}?
    {PL}: I met {PF} at {O}, in {N} I think.
    {PU}: Yeah. No, that is right, I did say that.
    Q: What did people in {L} think of it?
    A: They laughed. Then {PG} showed them the figures.
    {PG}: I'd never heard of {W} before.
    {O} correspondent {PF} spoke with {PF} about life in {L}.
    We moved from {L} to {L} when I was nine.
    What do you like most about your work?
    I think that it takes patience, and some luck.
    {PF} is the founder of {X}, which now works in {L} and {L}.
    My brother {PG} still lives in {L}, and my aunt too.
    I read about it in {O}, and I called {PG} the same evening.
    In the end {PG} and I wrote the song together."""
)
ACADEMIC = _lines(
    """{PF}, {O}, {L}
    Following {PL} and {PL} ({N}), we use the term in a narrow sense.
    Data were collected in {L} between {N} and {N}.
    This work was funded by the {O} under grant {N}.
    {PL} et al. ({N}) found no effect in {L}.
    We recruited {N} students of {O}.
    The results are shown in {W}.
    Our model follows the one in {PL} ({N}), with two changes.
    Participants were asked to read a text and to answer questions.
    Samples from {L} had a higher salinity than those from {L}.
    The survey was carried out by {X} on behalf of {O}.
    As {PL} argues, the concept of {W} is older than its name.
    This finding is in line with earlier studies (see {PL}, {N}; {PL} and {PL}, {N}).
    Further work is needed to explain the difference.
    The corpus contains {N} words of {W} and {N} of {W}."""
)
CONTRACT = _lines(
    """This Agreement is made on {D} between {C} ("Supplier") and {C} ("Customer").
    {C}, a company registered in {L}, with its office at {N} {L}, {L}.
    The Parties agree that the laws of {L} shall govern this Agreement.
    Notices to the Customer shall be sent to {PF}, {R}, {C}, {L}.
    The Supplier shall deliver the Goods within {N} days of the Effective Date.
    Payment shall be made to the {A} account within {N} days.
    Any dispute shall be settled by the courts of {L}.
    IN WITNESS WHEREOF: {PF}, {R}, for {C}.
    "Confidential Information" means any information disclosed by either Party.
    {C} shall lease the premises in {L} to {C} for a term of {N} years.
    The Employee, {PF}, shall report to {PF}.
    Neither Party may assign this Agreement without written consent.
    Services under {J} are invoiced by {C} at the end of each month."""
)
SOCIAL = _lines(
    """just landed in {L}!! so tired lol
    RT @newsdesk: {PF} quits {X} {W}
    Anyone know if {X} is open today in {L}?
    happy birthday {PG} 🎂 see you in {L} on {D}
    {X} customer service is a joke. {N} minutes on hold.
    omg {PF} was amazing last night in {L} #live
    can't believe {PG} and {PG} are moving to {L} 😭
    Watching {W} with {PG}, who falls asleep every time
    {L} > {L}, don't @ me
    new job at {X}! thanks {PG} for the tip
    why is everybody talking about {W} today
    traffic on {L} again, avoid
    so proud of my sister {PG}, first day at {O}
    I need coffee. and a nap. and maybe a new job."""
)
MEETING = _lines(
    """{PU}: Who is late with {J}?
    {PU}: {C} has not paid, and {PG} wants to stop deliveries to {L}.
    {PU}: I can call {PF} at {C} tomorrow.
    {PU}: Okay. Next item, please.
    {PU}: The {A} account is nearly empty. Who moved the money?
    {PU}: {J} slips by two weeks, {PG} told me so on {D}.
    {PU}: Let us not blame {PG}. The parts come from {L}.
    {PU}: Fine. I will write it down.
    {PU}: Did anybody read the {W} report?
    {PU}: {PG}, can you book that on {A}?
    {PU}: We drove to {L} and nobody was there.
    {PU}: {X} asked again about the fence in {L}.
    {PU}: If {J} needs another server, {C} should pay for it.
    {PG}: I'm not sure. Ask {PG}.
    {PG}: {C} signed on {D}, so {J} can start in {L}.
    {PG}: No. Absolutely not.
    **{PL}:** The lawyers of {C} want a date for {J}.
    **{PL}:** That was in {D}, and {PL} was not even here.
    **{PF}:** We have {N} open points, most of them in {L}.
    {PF}: So {J} is done, except for the tests.
    {PF}: {PS} from {C} joins at ten.
    {PF}: I would rather wait until {D}."""
)
MINUTES = _lines(
    """Present: {PF}, {PF}, {PF}; apologies from {PF}.
    Attendees: {PF} ({C}), {PF} ({C}), {PG}
    Chair: {PF}. Minutes: {PF}.
    Action: {PG} to send the drawings of {J} to {C} by {D}.
    - {PG} orders the pump, {PG} fetches it in {L}
    - **{J}**: on time; next review on {D}
    - {A}: {N} euros left, {PF} to check
    Decided: {J} moves to {L} in {D}.
    {PF} reported on {J}: the supplier, {C}, is two weeks late.
    The board approved a transfer of {N} from {A} to {A}.
    {PS} asked whether {C} would renew. {PG} thinks so.
    Item {N}: budget. The budget was approved.
    The rent in {L} is charged to {A} from {D} on.
    Any other business: none.
    It was agreed to postpone the decision.
    {PF} will visit {C} in {L} together with {PG}.
    Work on {J} stopped when the site in {L} was flooded.
    {PG} has taken over {J} from {PG}.
    Invoices for {J} go to the {A} account, not to {A}.
    The next meeting is on {D} in {L}.
    Trailer {N} stays in {L} until {C} has inspected it."""
)
EMAIL = _lines(
    """From: {PF}
    To: {PF}; {PF}
    Subject: {J}, delivery to {L}
    Hi {PG},
    Dear {PS},
    Hello {PG} and {PG},
    Please book the hotel in {L} on {A}.
    I spoke to {PF} of {C} today; they will accept {N}.
    {C} wants the first part of {J} before {D}.
    Could you forward this to {PG}? I am in {L} until {D}.
    The invoice from {C} is attached, it belongs to the {A} account.
    Thank you for your help with {J}.
    Have you heard from {C}? {PG} has not.
    {PG} says that the {A} account is overdrawn by {N}.
    Best regards,
    {PF}
    {PG}
    {R}, {C}
    Sorry for the late answer, it was a long week.
    I'll be out of office from {D}.
    {PG} has left {C}; write to {PF} instead."""
)
RESEARCH = _lines(
    """{C} sells the sensor in {L} through {C}.
    Source: {O}, report of {D}.
    {PF} of {C} says that prices in {L} rose by {N} percent.
    The route from {L} to {L} is closed in winter.
    {C} runs {N} plants, the largest in {L}.
    Competitors: {C}, {C}, {C}.
    Contact: {PF} ({R}), {L}
    What this means for {J}: nothing before {D}.
    If {C} buys {C}, the {A} account would have to be renegotiated.
    Trucks wait {N} hours at {L}.
    # {C}: notes from a visit
    ## Prices in {L}
    The rule applies to vehicles above {N} kg.
    {PG} at {C} could tell us more.
    {L} has {N} inhabitants and one cold store.
    The pilot with {C} is called {J}.
    Their finance people book it under {A}.
    The answer came from {PS} of the {O}."""
)
CARDS = _lines(
    """name: {PF}
    full_name: {PF}
    employer: {C}
    company: {C}
    city: {L}
    address: {N} {L}, {L}
    country: {L}
    account: {A}
    project: {J}
    role: {R}
    assistant: {PF}
    reports to: {PF}
    met at: {L}, {D}
    notes: knows {PF} from {O}; prefers calls on {D}
    notes: buys for {C} and for {C}; ask {PG} about {J}
    phone: +49 30 {N}
    email: office@example.org
    language: {W}
    title: {J}
    title: {C} in {L}
    author: {PF}
    participants: {PF}, {PF}, {PF}
    location: {L}
    client: {C}
    tags: [{W}, {L}]
    owner: {PF}
    {PF} — {R}, {C}, {L}
    {PF} has worked for {C} for {N} years, before that for {C} in {L}.
    Billing: {A} for parts, {A} for labour. Do not mix them.
    {PG}'s brother {PG} drives for {C}.
    Do not confuse with {PF} of {C}."""
)
EMPTY = _lines(
    """The demand grew by {N} percent in {D}.
    Okay. So what do we do about the budget?
    I think we should wait until {D}.
    It was cold and nobody came.
    See docs/plan.md and section {N}.
    Please read the {W} before you start.
    The pump makes a noise when it is warm.
    Who has the key? It was on the table yesterday.
    All tests passed except the last one.
    `retry_after` is {N} in `config/main.yaml`.
    Do not open the door while the light is red.
    Nothing was decided. We meet again on {D}.
    The {W} is due on {D}; the {W} is not.
    That is a good question, and I do not know.
    Under the Consumer Rights Act the refund is due within {N} days.
    First, remove the cover. Then lift the filter out.
    Yes. No. Maybe, if there is time.
    Prices are in euros and include {W}.
    Everybody laughed. Then it rained.
    The next version supports {W} and {W}.
    Speaker 1: And then? Speaker 2: Then we stopped.
    Read the manual before you call the help desk.
    We tried {W} instead, and it was slower.
    On {D} the office is closed."""
)
GERMAN = _lines(
    """{PF} von der {C} kommt am Dienstag nach {L}.
    Die {C} hat das Werk in {L} geschlossen, sagte {PL}.
    Wer kümmert sich um {J}? {PG} ist im Urlaub.
    Das Konto {A} ist leer, bitte mit {PG} klären.
    Anwesend: {PF}, {PF} und {PF}.
    Frau {PL} und Herr {PL} fahren morgen nach {L}.
    Der Vertrag mit {C} läuft im März aus.
    {PF} leitet seit Januar das Projekt {J}.
    Die Universität hat den Antrag abgelehnt.
    Wir treffen uns am Bahnhof, wie immer.
    Die Rechnung geht an {C} in {L}.
    Laut {O} stiegen die Preise um {N} Prozent.
    In {L} regnet es, in {L} scheint die Sonne.
    Sehr geehrte Frau {PL}, vielen Dank für Ihre Nachricht."""
)
FRENCH = _lines(
    """{PF} travaille chez {C} à {L} depuis {N} ans.
    La société {C} a vendu son usine de {L}.
    Le projet {J} est en retard, selon {PG}.
    Présents : {PF}, {PF}, {PF}.
    Mme {PL} et M. {PL} arrivent de {L} mardi.
    Le compte {A} doit être clos avant juin.
    Nous avons rencontré {PF} à {L}.
    D'après {O}, la hausse est de {N} pour cent.
    Il faut attendre la réponse de {C}.
    La réunion est reportée à lundi.
    Merci d'envoyer la facture à {PF}, {C}, {L}."""
)
SPANISH = _lines(
    """{PF} trabaja en {C}, en {L}, desde {N}.
    La empresa {C} cerró su planta de {L}.
    El proyecto {J} va con retraso, dice {PG}.
    Asistentes: {PF}, {PF} y {PF}.
    La señora {PL} viaja a {L} el martes.
    El pago sale de la cuenta {A}.
    Según {O}, los precios subieron un {N} por ciento.
    Hablé con {PF} de {C} sobre {J}.
    No hay novedades; seguimos el lunes.
    Vivió en {L} y después en {L}."""
)
HAN = _lines(
    """{HP}在{HL}的{HC}工作。
    {HC}今天宣布与{HC}合作。
    会议纪要：{HP}负责{HJ}，{HP}负责采购。
    {HP}昨天从{HL}到了{HL}。
    请把发票寄给{HC}，从{HA}支付。
    今天没有人来，会议取消了。
    {HP}さんは{HL}の{HC}で働いています。
    {HJ}は来月{HL}で始まります。
    {HP} 씨는 {HL}에 있는 {HC}에서 일합니다.
    下周一之前请完成测试。"""
)
KINDS: dict[str, tuple[tuple[str, ...], float]] = {
    "news": (NEWS, 14),
    "wiki": (WIKI, 8),
    "court": (COURT, 5),
    "interview": (INTERVIEW, 9),
    "academic": (ACADEMIC, 6),
    "contract": (CONTRACT, 6),
    "social": (SOCIAL, 7),
    "meeting": (MEETING, 13),
    "minutes": (MINUTES, 10),
    "email": (EMAIL, 7),
    "research": (RESEARCH, 8),
    "card": (CARDS, 9),
    "empty": (EMPTY, 5),
    "german": (GERMAN, 5),
    "french": (FRENCH, 3),
    "spanish": (SPANISH, 3),
    "han": (HAN, 3),
}
"""Sentences of each kind, and its weight among the generated texts."""
