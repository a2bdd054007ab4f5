"""The program where another user gets to it, as may not be so where it was built; or under another path."""
import pathlib
import shutil


def copy_program(program, folder, *more):
    """With the files next to it that the test needs."""
    program, folder = pathlib.Path(program), pathlib.Path(folder)
    folder.mkdir(parents=True)
    for source in program, *(program.parent / name for name in more):
        shutil.copytree(source, folder / source.name) if source.is_dir() else shutil.copy(source, folder / source.name)
    return folder / program.name
