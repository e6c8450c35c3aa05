"""Who holds the memory of this process: tensors by module, arrays, large objects, and how much is left.

    from memory.attribute import attribute, lines
    print("\\n".join(lines(attribute())))

`largest` is its quick part, for a black box.
"""

from __future__ import annotations

from memory.attribute.attribution import Attribution as Attribution
from memory.attribute.attribution import attribute as attribute
from memory.attribute.attribution import largest as largest
from memory.attribute.table import brief as brief
from memory.attribute.table import lines as lines
