"""Programs that train on several ranks: on CPUs through gloo, or on a GPU each."""
