"""How fast the parts are: our loop beside other libraries', the share outside forwards, trees, graphs and searches."""
