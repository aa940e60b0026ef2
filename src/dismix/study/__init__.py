"""Does mixing help on these images? One command, one page: see `dismix.study.conduct`."""
