"""The guided tour: lessons that ask first, and check the answer against the reader's own recording."""
