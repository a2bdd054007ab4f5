/* contract.h -- what plimsoll.h promises of every call, checked from outside: which statuses there
 * are, what an error says, and that output is what it is called.  Written without the library, so
 * that a mistake is not made twice. */
#ifndef TORTURE_CONTRACT_H
#define TORTURE_CONTRACT_H

#include "plimsoll.h"

/* Each returns what is wrong, a static string; NULL: nothing. */
const char *contract_utf8(const char *p, size_t n);
/* UTF-8 that changes nothing of a terminal: no control characters but the ends of lines. */
const char *contract_text(const char *p, size_t n);
const char *contract_json(const char *p, size_t n);       /* RFC 8259, one value */
const char *contract_json_lines(const char *p, size_t n); /* the same in each line */
const char *contract_csv(const char *p, size_t n); /* RFC 4180, with equally many fields */
const char *contract_error(plim_status st, const plim_err *err);

#endif
