/* symexpr.h -- sizes that a file gives as expressions of symbols.
 *
 * torch.export writes what sympy prints: "Mul(Integer(64), Symbol('s72', positive=True,
 * integer=True))" or, in old files, "64*s72".  Both are read, with Python's // and %.
 * Arithmetic is on exact fractions, so (3*s)/2 is not rounded; results are integers.
 * src: torch/utils/_sympy/functions.py, sympy's srepr */
#ifndef PLIM_SYMEXPR_H
#define PLIM_SYMEXPR_H

#include "base/base.h"

typedef struct plim_symbol {
    plim_str name;
    bool bound;
    int64_t value;
    bool has_hint;
    int64_t hint; /* value in the example inputs */
} plim_symbol;

typedef struct plim_symbols {
    plim_arena *arena;
    plim_map ids;
    plim_symbol *rows;
    uint32_t n, cap;
} plim_symbols;

/* The symbol of this name, created if new; NULL: no memory.  Valid until the next call. `name`
 * is borrowed. */
plim_symbol *plim_symbol_get(plim_symbols *s, plim_str name);

/* Value of an expression.  If a symbol is not bound, *missing is the first such symbol and the
 * status is PLIM_ESHAPE.  PLIM_EUNSUPPORTED: an unknown function. */
plim_status plim_symexpr_eval(const plim_symbols *s, plim_str text, int64_t *out,
                              plim_str *missing, plim_err *err);

/* Binds the one unbound symbol of an expression that is linear in it, so that the expression
 * has this value; if none is unbound, compares.  PLIM_ESHAPE: impossible; *missing is set if
 * more than one is unbound. */
plim_status plim_symexpr_solve(plim_symbols *s, plim_str text, int64_t value,
                               plim_str *missing, plim_err *err);

/* "s72" if the expression is just that symbol. */
bool plim_symexpr_is_symbol(plim_str text, plim_str *name);

#endif
