"""The course of one `optimize`: candidates one by one, then all that is left against each other, then a trace."""
