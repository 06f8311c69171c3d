"""One file per suggestion. An edit looks at shapes of code, never at names of programs."""
