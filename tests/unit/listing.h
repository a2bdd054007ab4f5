/* listing.h -- for tests of file listings. */
#ifndef PLIM_LISTING_H
#define PLIM_LISTING_H

#include "import/import.h"
#include "unit.h"

#define LISTING_DATA PLIM_SOURCE_DIR "/tests/data/"

/* Maps tests/data/NAME; the test fails if it cannot. */
plim_bytes listing_map(const char *fmt, ...) PLIM_PRINTF(1, 2);

/* Lists tests/data/NAME through its probe into a new inventory in `a`. */
plim_status listing_file(plim_inventory *v, plim_arena *a, const char *name, plim_err *err);
/* The same for bytes, with this importer whatever the probe says. */
plim_status listing_bytes(plim_inventory *v, plim_arena *a, const plim_importer *im,
                          plim_bytes b, plim_err *err);

/* Compares all items with tests/golden/weights/NAME.txt. */
void listing_check_golden(const plim_inventory *v, const char *name);

/* For each file of tests/data: its golden listing, and the name of its format. */
typedef struct listing_case {
    const char *file, *golden, *format;
} listing_case;
void listing_check_all(const listing_case *cases, size_t n);

/* "" if there is no such fact. */
const char *listing_fact(const plim_inventory *v, const char *key);
bool listing_noted(const plim_inventory *v, const char *part);

/* Lists the file cut off after each byte, then with each byte changed in three ways: it must
 * be listed or refused with a message. */
void listing_survive(const plim_importer *im, const char *name);
/* Lists it with the n-th allocation failing, for all n. */
void listing_starve(const char *name);

#endif
