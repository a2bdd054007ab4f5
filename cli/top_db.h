/* top_db.h -- what the writer and the reader of a log share.  Only in a program with SQLite. */
#ifndef PLIM_TOP_DB_H
#define PLIM_TOP_DB_H

#include <plimsoll.h>
#include <sqlite3.h>

enum {
    PLIM_TOP_DB_ID = 0x506c696d, /* PRAGMA application_id: "Plim" */
    PLIM_TOP_DB_VERSION = 1      /* PRAGMA user_version */
};

/* Opens the database at `path`.  For reading it must be a log, and is left as it is; for
 * writing it becomes one if it is empty. */
plim_status plim_top_db_open(const char *path, bool write, sqlite3 **out, plim_err *err);
/* Memory for what is read of the database, in addition to SQLite's. */
size_t plim_top_db_memory(void);
/* From now on statements may take as many steps as reading all of the database takes, and more; *left,
 * which lives as long as `db`, counts them.  SQLITE_INTERRUPT: they took more. */
int plim_top_db_bound(sqlite3 *db, uint64_t *left);
/* What SQLite says of the call that failed last, or `code` without a database. */
plim_status plim_top_db_fail(sqlite3 *db, int code, const char *path, plim_err *err);

#endif
