/* utf8.h -- the characters of text that comes from elsewhere: names in files, arguments, what a driver
 * says.  Which of them may be printed is decided here, for terminals, CSV, JSON and messages alike. */
#ifndef PLIM_UTF8_H
#define PLIM_UTF8_H

#include "base/base.h"

#define PLIM_UTF8_BAD UINT32_MAX

/* The code point at the start of s, which is not empty, and its length in bytes; PLIM_UTF8_BAD, of length
 * 1, where s is not valid UTF-8. */
uint32_t plim_utf8_decode(plim_str s, size_t *len);

/* Is the character visible?  Not those that control a terminal, end a line or hide text, nor
 * PLIM_UTF8_BAD. */
bool plim_utf8_shows(uint32_t c);

/* Makes text one visible line, in place: what is not shown becomes '?', a tab or a line end a blank.
 * Returns the length, which may be less than before. */
size_t plim_utf8_clean(char *p, size_t n);

#endif
