"""The referee: what it said of the lab's techniques, how often it errs, and where its time goes."""
