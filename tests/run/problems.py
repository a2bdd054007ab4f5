"""What did not hold: for the tests here, which end with its number."""
problems = []


def check(what, ok, more=""):
    if not ok:
        problems.append(what)
        print(f"not so: {what}: {str(more)[-800:]}")
