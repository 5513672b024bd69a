"""Changes its working directory to one that it deletes."""

import os
import tempfile

import fathom

for _ in range(20):
    fathom.step()
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
for _ in range(200):
    fathom.step()
try:
    os.getcwd()
except FileNotFoundError as error:
    print(error)
