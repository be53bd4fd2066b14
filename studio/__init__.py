"""Studio, the local web page: a view of `ec1.queries` that is rendered on the server.

Belongs here: addresses, what they show, forms. Does not: what there is to see (`ec1.queries`), and what a change does:
each form goes through a door that the command line has too (`ec1.queries.doors`).
Pages work without a script; `static/studio.js` adds keys, answers that stream, and the choice of dark or light.
"""
