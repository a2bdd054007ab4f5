"""rows.py -- walks answers by the rows of src/answers (tools/figures.py)."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import figures  # noqa: E402


class Rows:
    """The rows of src/answers, which answers have as members."""

    def __init__(self, case):
        self.case, self.seen = case, set()
        self.objects = figures.OBJECTS
        self.schemas = {o.schema: o for o in self.objects.values() if o.schema}
        self.files = {o.file for o in self.objects.values()}

    def walk(self, data):
        if data["schema"] in self.schemas:
            self.walk_object(self.schemas[data["schema"]], data)

    def walk_object(self, o, data):
        rows = [f for f in o.figures if f.in_data]
        keys = [f.key for f in rows]
        self.case.assertEqual([k for k in data if k != "schema"], [k for k in keys if k in data], o.name)
        for f in rows:
            if f.key not in data:
                self.case.assertTrue(f.only, f"{o.name}.{f.key}")
                continue
            self.seen.add((o.name, f.key))
            value = data[f.key]
            if value is None:
                self.case.assertTrue(f.optional, f"{o.name}.{f.key}")
            elif f.of:
                for x in value if f.what in figures.LISTS else [value]:
                    self.walk_object(self.objects[f.of], x)

    def walk_lists(self):
        """The lists of what plimsoll knows, each of which has entries of one object."""
        from plimsoll import _ask, _records
        registries = pathlib.Path(__file__).resolve().parents[2] / "src/registry/registries.def"
        for _, (_, (name,), (row,), *_) in figures.statements(registries.read_text(encoding="utf-8")):
            for entry in _ask._listing(name, _records.Record, None).to_dict()[name]:
                self.walk_object(self.objects[row], entry)

    def unseen(self, files):
        """Rows of these files that no answer had."""
        every = {(o.name, f.key) for o in self.objects.values() if o.file in files and not o.table
                 for f in o.figures if f.in_data}
        return sorted(every - self.seen)
