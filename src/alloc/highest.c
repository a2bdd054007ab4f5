/* highest.c -- see highest.h.  The depth of the recursion is that of a treap: logarithmic,
 * whoever chose the keys. */
#include "alloc/highest.h"

static uint32_t node_priority(uint32_t id)
{
    id = (id ^ id >> 16) * 0x7feb352du;
    return (id ^ id >> 15) * 0x846ca68bu;
}

static uint64_t most_of(const plim_highest_node *n, uint32_t id)
{
    return id == PLIM_NONE ? 0 : n[id].most;
}

static uint32_t update_most(plim_highest_node *n, uint32_t id)
{
    plim_assert(id != PLIM_NONE);
    uint64_t below = PLIM_MAX(most_of(n, n[id].left), most_of(n, n[id].right));
    n[id].most = PLIM_MAX(n[id].size, below);
    return id;
}

/* Divides a tree into the members before `key` and those after it. */
static void split_tree(plim_highest_node *n, uint32_t id, uint64_t key, uint32_t *before,
                       uint32_t *after)
{
    if (id == PLIM_NONE) {
        *before = *after = PLIM_NONE;
    } else if (n[id].key < key) {
        split_tree(n, n[id].right, key, &n[id].right, after);
        *before = update_most(n, id);
    } else {
        split_tree(n, n[id].left, key, before, &n[id].left);
        *after = update_most(n, id);
    }
}

static uint32_t join_trees(plim_highest_node *n, uint32_t before, uint32_t after)
{
    if (before == PLIM_NONE || after == PLIM_NONE)
        return before == PLIM_NONE ? after : before;
    if (node_priority(before) >= node_priority(after)) {
        n[before].right = join_trees(n, n[before].right, after);
        return update_most(n, before);
    }
    n[after].left = join_trees(n, before, n[after].left);
    return update_most(n, after);
}

static uint32_t insert_node(plim_highest_node *n, uint32_t at, uint32_t id)
{
    if (at == PLIM_NONE || node_priority(id) > node_priority(at)) {
        split_tree(n, at, n[id].key, &n[id].left, &n[id].right);
        return update_most(n, id);
    }
    uint32_t *side = n[id].key < n[at].key ? &n[at].left : &n[at].right;
    *side = insert_node(n, *side, id);
    return update_most(n, at);
}

void plim_highest_insert(plim_highest_node *n, uint32_t *root, uint32_t id, uint64_t size)
{
    n[id].size = size;
    *root = insert_node(n, *root, id);
}

static uint32_t erase_node(plim_highest_node *n, uint32_t at, uint32_t id)
{
    plim_assert(at != PLIM_NONE);
    if (at == id)
        return join_trees(n, n[id].left, n[id].right);
    uint32_t *side = n[id].key < n[at].key ? &n[at].left : &n[at].right;
    *side = erase_node(n, *side, id);
    return update_most(n, at);
}

void plim_highest_erase(plim_highest_node *n, uint32_t *root, uint32_t id)
{
    *root = erase_node(n, *root, id);
}

void plim_highest_resize(plim_highest_node *n, uint32_t root, uint32_t id, uint64_t size)
{
    plim_assert(root != PLIM_NONE);
    if (root == id)
        n[id].size = size;
    else
        plim_highest_resize(n, n[id].key < n[root].key ? n[root].left : n[root].right, id,
                            size);
    update_most(n, root);
}

/* ---- searches ------------------------------------------------------------ */

uint32_t plim_highest_find(const plim_highest_node *n, uint32_t root, uint64_t size)
{
    uint32_t id = root != PLIM_NONE && n[root].most >= size ? root : PLIM_NONE;
    while (id != PLIM_NONE) {
        uint32_t right = n[id].right;
        if (right != PLIM_NONE && n[right].most >= size)
            id = right;
        else if (n[id].size >= size)
            break;
        else
            id = n[id].left;
    }
    return id;
}

uint32_t plim_highest_above(const plim_highest_node *n, uint32_t root, uint64_t key)
{
    uint32_t best = PLIM_NONE;
    for (uint32_t id = root; id != PLIM_NONE;) {
        bool above = n[id].key > key;
        best = above ? id : best;
        id = above ? n[id].left : n[id].right;
    }
    return best;
}
