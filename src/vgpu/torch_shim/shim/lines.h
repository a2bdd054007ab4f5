// lines.h -- the source line that is responsible for an allocation.
#pragma once
#include "state.h"

namespace {

// What is needed of CPython, found in the process: no Python headers, any
// version.
struct Python {
    int (*ensure)() = nullptr;
    void (*release)(int) = nullptr;
    void *(*frame)() = nullptr;
    void *(*back)(void *) = nullptr;
    void *(*code)(void *) = nullptr;
    int (*lineno)(void *) = nullptr;
    void *(*attr)(void *, const char *) = nullptr;
    const char *(*utf8)(void *) = nullptr;
    void (*drop)(void *) = nullptr;
    int (*running)() = nullptr;
    void (*clear)() = nullptr;
    void (*keep)(void *) = nullptr;
    bool ok = false;
    std::vector<std::string> skip; // path prefixes that are not the user's
    bool packages = false;         // installed ones count as the user's
    std::string cwd;

    template <class F> void find(F &f, const char *name)
    {
        f = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
        ok = ok && f;
    }
    void open()
    {
        ok = true;
        find(ensure, "PyGILState_Ensure");
        find(release, "PyGILState_Release");
        find(frame, "PyEval_GetFrame");
        find(back, "PyFrame_GetBack");
        find(code, "PyFrame_GetCode");
        find(lineno, "PyFrame_GetLineNumber");
        find(attr, "PyObject_GetAttrString");
        find(utf8, "PyUnicode_AsUTF8");
        find(drop, "Py_DecRef");
        find(running, "Py_IsInitialized");
        find(clear, "PyErr_Clear");
        find(keep, "Py_IncRef");
    }
} py;

const char *intern(const std::string &s)
{
    std::lock_guard<std::mutex> lock(g.mu);
    return g.words.insert(s).first->c_str();
}

// Where the name of an installed package's file begins, behind "/site-packages/"; npos: it
// is of none.
size_t package_name(const std::string &path, size_t from = 0)
{
    for (const char *folder : {"/site-packages/", "/dist-packages/"}) {
        size_t at = path.find(folder, from);
        if (at != std::string::npos)
            return at + strlen(folder);
    }
    return std::string::npos;
}

// A code object's file as it is shown; empty: not the user's.  Code objects are
// kept, so that an address means one thing.
const std::string &file_of(void *code)
{
    static std::unordered_map<void *, std::string> seen; // under the GIL
    auto it = seen.find(code);
    if (it != seen.end())
        return it->second;
    std::string path;
    if (void *text = py.attr(code, "co_filename")) {
        if (const char *z = py.utf8(text))
            path = z;
        py.drop(text);
    }
    py.clear();
    size_t name = package_name(path);
    bool packaged = name != std::string::npos;
    bool mine =
        !path.empty() && (path[0] != '<' || path == "<string>") && (!packaged || py.packages);
    for (const auto &prefix : py.skip) // the standard library's has the packages below it
        mine = mine && (path.compare(0, prefix.size(), prefix) != 0 ||
                        package_name(path, prefix.size()) != std::string::npos);
    if (!mine)
        path.clear();
    else if (packaged)
        path.erase(0, name);
    else if (!py.cwd.empty() && path.compare(0, py.cwd.size(), py.cwd) == 0)
        path.erase(0, py.cwd.size());
    py.keep(code);
    return seen[code] = path;
}

// Where the user's code started this thread, which works for that line if for none of its own.
thread_local const char *inherited_line = nullptr;

// "train.py:12", the innermost frame that is the user's; nullptr: none.
const char *python_line()
{
    if (!py.ok || !py.running())
        return nullptr;
    int state = py.ensure();
    const char *found = nullptr;
    void *frame = py.frame(), *owned = nullptr;
    for (int depth = 0; frame && !found && depth < 200; depth++) {
        void *code = py.code(frame);
        const std::string &file = file_of(code);
        if (!file.empty())
            found = intern(file + ":" + std::to_string(py.lineno(frame)));
        py.drop(code);
        void *next = py.back(frame);
        if (owned)
            py.drop(owned);
        frame = owned = next;
    }
    if (owned)
        py.drop(owned);
    py.release(state);
    return found ? found : inherited_line;
}

// The thread that made a node.
struct NodeThread : torch::autograd::Node {
    static uint64_t of(const torch::autograd::Node &node)
    {
        return node.*(&NodeThread::thread_id_);
    }
};

// In a backward pass the line and the module of the forward op that the node belongs to.
Place user_place()
{
    auto node = torch::autograd::get_current_node();
    if (!node)
        return {python_line(), g.module};
    uint64_t seq = node->sequence_nr();
    std::lock_guard<std::mutex> lock(g.mu);
    auto own = g.node_place.find(NodeThread::of(*node));
    // What checkpointing computes again has nodes of a thread that has no lines.
    const auto &places = own == g.node_place.end() ? g.node_place[g.main_thread] : own->second;
    // A view's node has none: that of the op before it.
    for (uint64_t i = std::min<uint64_t>(seq + 1, places.size()); i > 0; i--)
        if (places[i - 1].line)
            return places[i - 1];
    return {"(backward)", ""};
}

// An op is about to run on this thread: if autograd has just made its node, that
// node has the newest number.
void note_node(Place place)
{
    uint64_t next = at::sequence_number::peek();
    if (!next || !place.line || next > (1u << 26))
        return;
    std::lock_guard<std::mutex> lock(g.mu);
    auto &places = g.node_place[at::RecordFunction::currentThreadId()];
    if (places.size() < next)
        places.resize(next + next / 2);
    if (!places[next - 1].line) // the first op to run is the node's own
        places[next - 1] = place;
}

} // namespace
