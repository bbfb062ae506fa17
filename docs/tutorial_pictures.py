"""Draw the pictures of the tutorial by running its code: python docs/tutorial_pictures.py (needs matplotlib)."""

import doctest
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "closefar", "svg.fonttype": "path", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402

folder = Path(__file__).parent
page = (folder / "tutorial.md").read_text(encoding="utf-8")
names = {}
# Each picture is the figure that the code above it drew last.
for part in re.split(r"(?<=\.svg\)\n)", page):
    for example in doctest.DocTestParser().get_examples(part):
        exec(example.source, names)
    image = re.search(r"\((images/tutorial-\w+\.svg)\)\n$", part)
    if image:
        plt.gcf().savefig(folder / image[1], metadata={"Date": None})
