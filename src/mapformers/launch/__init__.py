"""Where the cells of a recipe run: processes of this machine, or jobs of a cluster."""
