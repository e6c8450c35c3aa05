"""Growth with the steps: is it steady, and when does it reach the limit?"""
