"""Where an entry of the settings comes from: a folder of a repository, and what its files said.

Made by entries.py, carried by ModelConfig, read by loading/add.py, which compares the tensors
that a file declares with those of the graph, and by the commands that show models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

FORMATS: Final = ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")  # by their numbers in Triton


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor as a configuration declares it; -1 is a free dimension.

    Args:
        where: file, line and field, for messages.
        name: of the tensor.
        datatype: as Triton names it, such as FP32; "" where the file says none.
        dims: without the rows where `has_rows`; None where the file says none.
        has_rows: the rows come before `dims`.
        is_input: or else an output.
        format: the order of a picture's dimensions, one of FORMATS.
        label_file: as the file names it; "" where it names none.
        reshape: what `dims` are in the graph; None: the same.
        optional: requests may leave the input out.
        no_rows: the file says that there is no batch, whatever the graph has free.
    """

    where: str
    name: str
    datatype: str
    dims: tuple[int, ...] | None
    has_rows: bool
    is_input: bool
    format: str = "FORMAT_NONE"
    label_file: str = ""
    reshape: tuple[int, ...] | None = None
    no_rows: bool = False
    optional: bool = False

    def shape(self) -> list[int] | None:
        """With the rows, as the graph has it."""
        if self.dims is None:
            return None
        dims = self.dims if self.reshape is None else self.reshape
        return [-1, *dims] if self.has_rows else list(dims)

    def reshaped(self) -> list[int] | None:
        """With the rows, as clients say and see it; None: as the graph has it."""
        if self.dims is None or self.reshape is None:
            return None
        return [-1, *self.dims] if self.has_rows else list(self.dims)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the files of a repository say of a model beyond its settings.

    Args:
        folder: of the model, or its file.
        version: that is served.
        versions: all that the folder holds, ascending.
        declared: tensors.
        notes: sentences for the person who starts the server.
        file_name: that the configuration gives the model; "" where it gives none.
        listed: the file that lists the model with others; "" where none does.
        is_given: a call to load has brought its configuration, which no file has.
    """

    folder: str
    version: int
    versions: tuple[int, ...] = ()
    declared: tuple[Declared, ...] = ()
    notes: tuple[str, ...] = ()
    file_name: str = ""
    listed: str = ""
    is_given: bool = False

    def noted(self, *sentences: str) -> Origin:
        """The same with further sentences."""
        return replace(self, notes=(*self.notes, *sentences))
