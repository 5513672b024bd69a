"""Fathom in notebooks, trainers and experiment trackers. Import the module of the library that you use:

`lightning` and `hugging_face` have a `FathomCallback`; `trackers` has `to_tensorboard` and `to_wandb`.
"""
