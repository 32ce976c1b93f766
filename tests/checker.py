"""The type checker that tests run under: beartype, with an int accepted where a float is asked for."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
