/* caller.c -- who called: the library of a return address, and the line of Python. */
#include "record.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- libraries -------------------------------------------------------------- */

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

/* ---- Python ----------------------------------------------------------------- */

/* A thread that has released Python's lock (GIL), as PyTorch's has when it allocates, may not
 * call Python, and may not wait for the lock: it may hold another that the lock's holder waits
 * for.  But its own frames stay as they are as long as it is here, so they can be read, where it is
 * known how they lie in memory.  Elsewhere only a thread that holds the lock is asked. */
typedef struct python_layout {
    unsigned version; /* 0x030b: 3.11 */
    unsigned frame_at,
        via; /* in the state of the thread; then, unless NO, where it points to */
    unsigned code, previous, instruction; /* in a frame */
    unsigned bytes;                       /* in a code object: its instructions */
    unsigned text;                        /* in a str: its characters */
} python_layout;

/* src: measured with ctypes on CPython 3.11.7, 3.12.1 and 3.13.0, 64-bit */
#define NO ~0u
static const python_layout layouts[] = {
    {0x030b, 56, 8, 32, 48, 56, 184, 48},
    {0x030c, 56, 0, 0, 8, 56, 192, 40},
    {0x030d, 72, NO, 0, 8, 56, 200, 40},
};
enum { TYPE = 8, FILE_NAME = 112, TEXT_LENGTH = 16, TEXT_STATE = 32, FRAME = 72 };

static struct {
    atomic_int state; /* 0: not looked for; 1: there; 2: not */
    const python_layout *layout;
    char *code_type, *text_type;
    char *(*thread)(void); /* NULL: not Python's */
    int (*code_line)(void *, int);
    int (*holds_gil)(void);
    void *(*frame)(void); /* borrowed */
    int (*line)(void *);
    void *(*code)(void *);                    /* owned */
    void *(*attribute)(void *, const char *); /* owned */
    const char *(*utf8)(void *);
    void *(*error)(void); /* borrowed */
    void (*drop)(void *);
} python;

/* The stable interface of CPython 3.9 and later, if the program has one. */
static bool find_python(void)
{
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"PyGILState_GetThisThreadState", &python.thread},
                     {"PyCode_Addr2Line", &python.code_line},
                     {"PyCode_Type", &python.code_type},
                     {"PyUnicode_Type", &python.text_type},
                     {"PyGILState_Check", &python.holds_gil},
                     {"PyEval_GetFrame", &python.frame},
                     {"PyFrame_GetLineNumber", &python.line},
                     {"PyFrame_GetCode", &python.code},
                     {"PyObject_GetAttrString", &python.attribute},
                     {"PyUnicode_AsUTF8", &python.utf8},
                     {"PyErr_Occurred", &python.error},
                     {"Py_DecRef", &python.drop}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = plim_record_dlsym()(RTLD_DEFAULT, functions[i].name);
        if (!f)
            return false;
        memcpy(functions[i].to, &f, sizeof f);
    }
    const unsigned long *version = plim_record_dlsym()(RTLD_DEFAULT, "Py_Version");
    for (size_t i = 0; version && i < sizeof layouts / sizeof *layouts; i++)
        if (*version >> 16 == layouts[i].version)
            python.layout = &layouts[i];
    return true;
}

/* Reads memory that may not be there; once a whole stack was as expected, without asking. */
static atomic_bool trusted;
static bool peek_at(const char *at, void *out, size_t n)
{
    struct iovec to = {out, n}, from = {(void *)(uintptr_t)at, n};
    if (!atomic_load_explicit(&trusted, memory_order_relaxed))
        return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)n;
    memcpy(out, at, n);
    return true;
}

static char *pointer_in(const char *bytes)
{
    char *p;
    memcpy(&p, bytes, sizeof p);
    return p;
}

typedef struct python_line {
    char file[PLIM_DRIVER_TEXT_MOST + 1];
    int line;
} python_line;

/* The file and line of a frame, and the one that called it; false: it is not as expected. */
static bool read_frame(char **frame, python_line *out)
{
    enum { ASCII = 1 << 6 };
    const python_layout *l = python.layout;
    char is[FRAME], code_is[FILE_NAME + 8], name_is[TEXT_STATE + 8];
    uint64_t length;
    if (!peek_at(*frame, is, sizeof is))
        return false;
    char *code = pointer_in(is + l->code), *instruction = pointer_in(is + l->instruction);
    if (!peek_at(code, code_is, sizeof code_is) ||
        pointer_in(code_is + TYPE) != python.code_type)
        return false;
    const char *name = pointer_in(code_is + FILE_NAME);
    if (!peek_at(name, name_is, sizeof name_is) ||
        pointer_in(name_is + TYPE) != python.text_type)
        return false;
    memcpy(&length, name_is + TEXT_LENGTH, sizeof length);
    if (!(name_is[TEXT_STATE] & ASCII) || length >= sizeof out->file ||
        !peek_at(name + l->text, out->file, length))
        return false;
    out->file[length] = '\0';
    out->line = python.code_line(code, (int)(instruction - code - l->bytes));
    *frame = pointer_in(is + l->previous);
    return true;
}

static bool is_own_line(const char *file)
{
    return file[0] != '<' && !strstr(file, "/site-packages/") &&
           !strstr(file, "/dist-packages/") && !strstr(file, "/lib/python3") &&
           !strstr(file, "/plimsoll_front/"); /* `plimsoll run` within a recording */
}

/* The innermost line outside libraries, else the innermost. */
static void read_stack(char *frame, plim_driver_event *e)
{
    enum { DEEPEST = 64 };
    python_line first = {.line = 0}, line;
    for (int i = 0; frame && i < DEEPEST; i++) {
        if (!read_frame(&frame, &line))
            break;
        if (!i)
            first = line;
        if (is_own_line(line.file)) {
            atomic_store_explicit(&trusted, true, memory_order_relaxed);
            first = line;
            break;
        }
    }
    if (first.line > 0) {
        e->file = plim_record_text(first.file);
        e->line = (uint32_t)first.line;
    }
}

static void read_thread(plim_driver_event *e)
{
    char *thread = python.thread(), *frame = NULL;
    if (!thread || !peek_at(thread + python.layout->frame_at, &frame, sizeof frame))
        return;
    if (python.layout->via != NO &&
        (!frame || !peek_at(frame + python.layout->via, &frame, sizeof frame)))
        return;
    read_stack(frame, e);
}

static void ask_python(plim_driver_event *e)
{
    if (!python.holds_gil() || python.error())
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

void plim_record_python(plim_driver_event *e)
{
    int state = atomic_load_explicit(&python.state, memory_order_acquire);
    if (!state) { /* threads that meet here find the same */
        state = find_python() ? 1 : 2;
        atomic_store_explicit(&python.state, state, memory_order_release);
    }
    if (state == 1 && python.layout)
        read_thread(e);
    else if (state == 1)
        ask_python(e);
}
