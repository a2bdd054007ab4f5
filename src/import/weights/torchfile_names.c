/* torchfile_names.c -- judges what a pickle would import and call, by name.
 *
 * There are three kinds: names that torch.load accepts with weights_only=True, which are not
 * mentioned; names that can start programs, for which the file is rejected; all others, which
 * are listed: loading such a file runs whatever those names do. */
#include "import/weights/torchfile_priv.h"

/* src: torch/_weights_only_unpickler.py of 2.13, _get_allowed_globals.  A '*' at the end or
 * beginning of a name matches anything. */
static const struct {
    const char *module, *name;
} weights[] = {
    {"collections", "OrderedDict"},
    {"collections", "Counter"},
    {"torch", "*Storage"},
    {"torch", "*Tensor"},
    {"torch.cuda", "*Storage"},
    {"torch.cuda", "*Tensor"},
    {"torch.storage", "*Storage"},
    {"torch", "Size"},
    {"torch", "device"},
    {"torch", "per_tensor_*"},
    {"torch", "per_channel_*"},
    {"torch._utils", "_rebuild_*"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.serialization", "_get_layout"},
    {"_codecs", "encode"},
    {"builtins", "bytearray"},
    {"builtins", "set"},
    {"builtins", "complex"},
    {"__builtin__", "bytearray"}, /* protocol 2's name for the module */
    {"__builtin__", "set"},
    {"__builtin__", "complex"},
};

/* In TorchScript: classes of the archive's own code, and lists of one type.
 * src: torch/csrc/jit/serialization/pickler.cpp */
static const struct {
    const char *module, *name;
} script[] = {{"__torch__*", "*"}, {"torch.jit._pickle", "*"}};

/* Modules that no weights need, and that a pickle can use to run a program, write a file or
 * reach the network: the common ground of scanners for pickles.
 * src: https://github.com/mmaitre314/picklescan, scanner.py */
static const struct {
    const char *name;
    bool package; /* including its modules */
} modules[] = {
    {"os", true},        {"posix", false},      {"nt", false},      {"subprocess", false},
    {"sys", false},      {"pty", false},        {"socket", false},  {"shutil", false},
    {"runpy", false},    {"importlib", true},   {"ctypes", true},   {"code", false},
    {"codeop", false},   {"pdb", false},        {"bdb", false},     {"timeit", false},
    {"commands", false}, {"webbrowser", false}, {"marshal", false}, {"pickle", false},
    {"_pickle", false},  {"cPickle", false},    {"requests", true}, {"urllib", true},
    {"urllib2", false},  {"http", true},        {"httplib", false}, {"ftplib", false},
    {"smtplib", false},  {"pip", true},         {"pydoc", false},   {"aiohttp", true},
    {"asyncio", true},
};

enum { LONG_NAME = 500 }; /* no module is that long; but a dotted path may be */

/* Single names of modules whose other names are harmless. */
static const struct {
    const char *module, *name;
} programs[] = {
    {"builtins", "eval"},
    {"builtins", "exec"},
    {"builtins", "compile"},
    {"builtins", "open"},
    {"builtins", "__import__"},
    {"builtins", "breakpoint"},
    {"__builtin__", "eval"},
    {"__builtin__", "execfile"},
    {"__builtin__", "exec"},
    {"__builtin__", "compile"},
    {"__builtin__", "open"},
    {"__builtin__", "file"},
    {"__builtin__", "apply"},
    {"__builtin__", "__import__"},
    {"types", "CodeType"},
    {"types", "FunctionType"},
    {"operator", "attrgetter"},
    {"operator", "methodcaller"},
    {"platform", "popen"},
    {"torch", "load"},
    {"torch.hub", "*"},
    {"torch.serialization", "load"},
    {"torch.utils.collect_env", "*"},
    {"torch.utils.cpp_extension", "*"},
    {"torch.jit.unsupported_tensor_ops", "*"},
    {"numpy.testing*", "*"},
};

static bool matches_pattern(plim_str s, const char *want)
{
    plim_str w = plim_str_of(want);
    if (!s.n)
        return plim_str_is(w, "*");
    if (w.n && w.p[0] == '*')
        return plim_str_ends(s, (plim_str){w.p + 1, w.n - 1});
    if (w.n && w.p[w.n - 1] == '*')
        return s.n >= w.n - 1 && memcmp(s.p, w.p, w.n - 1) == 0;
    return plim_str_eq(s, w);
}

/* The module, or one inside it; also if reached through a dotted name
 * ("serialization.os.system" of torch), which protocol 4 resolves. */
static bool uses_module(plim_str module, plim_str name, const char *want, bool package)
{
    size_t n = strlen(want);
    if (plim_str_is(module, want) ||
        (package && plim_str_starts(module, want) && module.p[n] == '.'))
        return true;
    for (size_t i = 0, from = 0; i < name.n; i++)
        if (name.p[i] == '.') {
            if (i - from == n && memcmp(name.p + from, want, n) == 0)
                return true;
            from = i + 1;
        }
    return false;
}

static bool is_program(plim_str module, plim_str name)
{
    if (module.n + name.n > LONG_NAME)
        return true;
    for (size_t i = 0; i < PLIM_COUNT(modules); i++)
        if (uses_module(module, name, modules[i].name, modules[i].package))
            return true;
    const char *dot = name.n ? memchr(name.p, '.', name.n) : NULL; /* "eval.__call__" */
    plim_str head = {name.p, dot ? (size_t)(dot - name.p) : name.n};
    for (size_t i = 0; i < PLIM_COUNT(programs); i++)
        if (matches_pattern(module, programs[i].module) &&
            matches_pattern(head, programs[i].name))
            return true;
    return false;
}

static bool is_weights(const torchfile *f, plim_str module, plim_str name)
{
    plim_dtype dtype;
    if (plim_str_is(module, "torch") && plim_dtype_find(name, &dtype))
        return true;
    for (size_t i = 0; i < PLIM_COUNT(weights); i++)
        if (matches_pattern(module, weights[i].module) &&
            matches_pattern(name, weights[i].name))
            return true;
    for (size_t i = 0; f->script && i < PLIM_COUNT(script); i++)
        if (matches_pattern(module, script[i].module) && matches_pattern(name, script[i].name))
            return true;
    return false;
}

#define CUT(s) (int)PLIM_MIN((s).n, (size_t)60), (s).p

enum { NAMED_MAX = 20 }; /* number of names that a note lists */

plim_status plim_torch_check_names(torchfile *f, const plim_pickle *p)
{
    plim_map seen = {0};
    plim_buf list;
    uint32_t n = 0, one;
    plim_buf_init(&list, f->a);
    for (uint32_t i = 0; i < p->n_globals; i++) {
        plim_str module = plim_pickle_text(plim_pickle_at(p->globals[i], 0));
        plim_str name = plim_pickle_text(plim_pickle_at(p->globals[i], 1));
        if (is_program(module, name))
            return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                             "torch.load would run code from this file: it imports "
                             "'%.*s.%.*s', which weights do not need",
                             CUT(module), CUT(name));
        if (is_weights(f, module, name))
            continue;
        plim_str both = plim_arena_printf(f->a, "%.*s.%.*s", CUT(module), CUT(name));
        if (!both.p)
            return plim_oom(f->err);
        if (plim_map_get(&seen, both, &one))
            continue;
        if (!plim_map_put(f->a, &seen, both, 1))
            return plim_oom(f->err);
        if (n++ < NAMED_MAX)
            plim_buf_printf(&list, "%s'" PLIM_STR_FMT "'", n > 1 ? ", " : "",
                            PLIM_STR_ARG(both));
    }
    if (n > NAMED_MAX)
        plim_buf_printf(&list, " and %" PRIu32 " more", n - NAMED_MAX);
    if (list.bad)
        return plim_oom(f->err);
    return n ? plim_inventory_note(
                   f->v, f->err,
                   "torch.load accepts this file only with "
                   "weights_only=False, which runs what it imports: " PLIM_STR_FMT,
                   PLIM_STR_ARG(plim_buf_str(&list)))
             : PLIM_OK;
}
