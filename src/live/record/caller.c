/* caller.c -- who called: the library of a return address, and the line of Python. */
#include "record.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

/* ---- libraries -------------------------------------------------------------------------- */

/* glibc 2.35 finds the object of an address without a lock; dladdr takes that of the loader.
 * src: dlfcn.h, struct dl_find_object */
typedef struct found_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    unsigned long long reserved[12];
} found_object;
typedef int (*find_object)(void *, found_object *);

/* The path of the object that an address lies in: "" is the program itself. */
static const char *path_of(void *address)
{
    static _Atomic(find_object) found;
    static atomic_bool looked;
    if (!atomic_load_explicit(&looked, memory_order_acquire)) {
        atomic_store(&found,
                     (find_object)plim_record_dlsym()(RTLD_DEFAULT, "_dl_find_object"));
        atomic_store_explicit(&looked, true, memory_order_release);
    }
    find_object find = atomic_load_explicit(&found, memory_order_relaxed);
    found_object object;
    Dl_info info;
    if (find)
        return find(address, &object) ? NULL : object.map->l_name;
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : NULL;
}

/* A library through which others call the driver. */
static bool is_runtime(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return !strncmp(name, "libcudart.so", 12) || !strncmp(name, "libcuda.so", 10);
}

/* The first frame above a runtime's that is not one. */
static const char *path_above(void *caller, const char *path)
{
    enum { FRAMES = 32 };
    void *frames[FRAMES];
    int n = backtrace(frames, FRAMES), i = 0;
    while (i < n && frames[i] != caller)
        i++;
    for (; i < n && path && is_runtime(path); i++)
        path = path_of(frames[i]);
    return path;
}

uint32_t plim_record_owner(void *caller)
{
    /* Calls come from one place again and again.  Another library that is loaded there later
     * has another name, at another address. */
    enum { PLACES = 16 };
    static _Thread_local struct place {
        void *caller;
        const char *path;
        uint32_t text;
        unsigned forks;
    } places[PLACES];
    const char *path = path_of(caller);
    if (!path)
        return 0;
    if (is_runtime(path)) {
        path = path_above(caller, path);
        return path ? plim_record_text(*path ? path : "the program") : 0;
    }
    struct place *last = &places[((uintptr_t)caller ^ (uintptr_t)caller >> 6) % PLACES];
    if (last->caller != caller || last->path != path || last->forks != plim_record_forks()) {
        last->text = plim_record_text(*path ? path : "the program");
        last->caller = last->text ? caller : NULL;
        last->path = path;
        last->forks = plim_record_forks();
    }
    return last->text;
}

/* ---- Python --------------------------------------------------------------------------------- */

/* The stable interface of CPython 3.9 and later, if the program has one. */
static struct {
    atomic_int state; /* 0: not looked for; 1: there; 2: not */
    int (*holds_gil)(void);
    void *(*frame)(void); /* borrowed */
    int (*line)(void *);
    void *(*code)(void *); /* owned */
    void *(*attribute)(void *, const char *);
    const char *(*utf8)(void *);
    void *(*error)(void); /* borrowed */
    void (*drop)(void *);
} python;

static bool find_python(void)
{
    static const char *const names[] = {"PyGILState_Check",       "PyEval_GetFrame",
                                        "PyFrame_GetLineNumber",  "PyFrame_GetCode",
                                        "PyObject_GetAttrString", "PyUnicode_AsUTF8",
                                        "PyErr_Occurred",         "Py_DecRef"};
    enum { N = sizeof names / sizeof *names };
    void *f[N];
    for (int i = 0; i < N; i++)
        if (!(f[i] = plim_record_dlsym()(RTLD_DEFAULT, names[i])))
            return false;
    python.holds_gil = (int (*)(void))f[0];
    python.frame = (void *(*)(void))f[1];
    python.line = (int (*)(void *))f[2];
    python.code = (void *(*)(void *))f[3];
    python.attribute = (void *(*)(void *, const char *))f[4];
    python.utf8 = (const char *(*)(void *))f[5];
    python.error = (void *(*)(void))f[6];
    python.drop = (void (*)(void *))f[7];
    return true;
}

/* Only a thread that holds the GIL is asked: who waits for it here may hold a lock that its
 * holder waits for, as that of PyTorch's allocator. */
void plim_record_python(plim_driver_event *e)
{
    int state = atomic_load_explicit(&python.state, memory_order_acquire);
    if (!state) { /* threads that meet here find the same */
        state = find_python() ? 1 : 2;
        atomic_store_explicit(&python.state, state, memory_order_release);
    }
    if (state != 1 || !python.holds_gil() || python.error())
        return;
    void *frame = python.frame(), *code = frame ? python.code(frame) : NULL;
    void *file = code ? python.attribute(code, "co_filename") : NULL;
    const char *path = file ? python.utf8(file) : NULL;
    if (path) {
        e->file = plim_record_text(path);
        e->line = (uint32_t)python.line(frame);
    }
    if (file)
        python.drop(file);
    if (code)
        python.drop(code);
}
