"""What a kept path stands on, asked for in every call: modes, attributes, hooks, parts, parameters, kinds of arguments."""
