"""Damaged and hostile files for every reader: seeds, mutations, and a run that finds what a reader lets through.

    cd tests && python -m fuzz --count 200000 --processes 6

A file must be read or refused by an `InputError` of one line: no crash, no other exception, nothing that takes longer
than five seconds or a gigabyte more than the limit, and what is read must survive writing and reading unchanged.
"""
