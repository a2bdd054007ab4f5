/* manual.c -- manual pages, in the language of mdoc(7), from what help prints. */
#include "cmds.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A word of n letters.  The hyphens of an option are minus signs, which can be copied from
 * the page and typed; quotation marks stay as they are typed. */
static void manual_word(plim_console *c, const char *word, size_t n)
{
    bool option = word[strspn(word, "'(")] == '-';
    for (size_t i = 0; i < n; i++)
        switch (word[i]) {
        case '\\': plim_console_puts(c, "\\e"); break;
        case '\'': plim_console_puts(c, "\\(aq"); break;
        case '-': plim_console_puts(c, option ? "\\-" : "-"); break;
        default: plim_console_put(c, word + i, 1);
        }
}

/* A text as lines of the source: a sentence begins a line, and none may look like a
 * request. */
static void manual_text(plim_console *c, const char *text, size_t n)
{
    enum { COLUMNS = 72 };
    size_t at = 0;
    bool ended = false; /* a sentence */
    for (const char *end = text + n; text < end; text += strspn(text, " ")) {
        size_t word = strcspn(text, " ");
        word = word < (size_t)(end - text) ? word : (size_t)(end - text);
        bool more = at && !ended && at + 1 + word <= COLUMNS;
        plim_console_puts(c, more ? " " : at ? "\n" : "");
        if (!more && *text == '.')
            plim_console_puts(c, "\\&");
        manual_word(c, text, word);
        at = (more ? at + 1 : 0) + word;
        ended = word > 1 && text[word - 1] == '.' && text[word - 2] != '.';
        text += word;
    }
    plim_console_puts(c, "\n");
}

/* A command line, as it is typed. */
static void manual_example(plim_console *c, const char *text)
{
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        manual_word(c, text, n);
        plim_console_puts(c, text[n] ? " " : "\n");
    }
}

static void manual_line(plim_console *c, const char *macro, const char *text)
{
    plim_console_puts(c, macro);
    plim_console_puts(c, text);
    plim_console_puts(c, "\n");
}

/* The description as a sentence: help begins it with a small letter. */
static void manual_sentence(plim_console *c, const char *doc)
{
    char text[256];
    snprintf(text, sizeof text, "%c%s.", toupper((unsigned char)*doc), doc + 1);
    manual_text(c, text, strlen(text));
}

static void manual_usage(plim_console *c, const plim_cmd *cmd)
{
    for (const char *word = cmd->usage; *word;) {
        size_t n = strcspn(word, " ");
        bool optional = *word == '[';
        char text[64];
        snprintf(text, sizeof text, ".%s %.*s\n", optional ? "Op Ar" : "Ar",
                 (int)(optional ? n - 2 : n), word + optional);
        char *dots = strstr(text, "...");
        if (dots) /* a word of their own, as mdoc has it */
            memcpy(dots, " ...\n", sizeof " ...\n");
        plim_console_puts(c, text);
        word += n + (word[n] == ' ');
    }
}

void plim_manual_print_all(plim_console *c)
{
    const plim_cmd *cmd = NULL;
    plim_console_puts(c, ".Bl -tag -width Ds\n");
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++) {
        char page[64];
        snprintf(page, sizeof page, ".It Xr plimsoll-%s 1", cmd->name);
        manual_line(c, page, "");
        manual_sentence(c, cmd->doc);
    }
    plim_console_puts(c, ".El\n");
}

static void manual_options(plim_console *c, const plim_cmd *cmd)
{
    const char *heading = NULL;
    plim_opt_info o;
    for (int i = 0; plim_opt_at(cmd->name, cmd->options, i, &o); i++) {
        if (o.heading != heading) {
            plim_console_puts(c, heading ? ".El\n" : "");
            manual_line(c, ".Ss ", o.heading);
            plim_console_puts(c, ".Bl -tag -width Ds\n");
        }
        heading = o.heading;
        char left[96];
        snprintf(left, sizeof left, ".It Fl -%s%s%s", o.name, o.arg ? " Ar " : "",
                 o.arg ? o.arg : "");
        manual_line(c, left, "");
        manual_text(c, o.doc, o.doc_n);
    }
    plim_console_puts(c, heading ? ".El\n" : "");
}

void plim_manual_print(plim_console *c, const plim_cmd *cmd)
{
    char title[64];
    snprintf(title, sizeof title, "PLIMSOLL-%s", cmd->name);
    for (char *p = title; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    plim_console_puts(c, ".Dd\n.Dt ");
    manual_line(c, title, " 1");
    manual_line(c, ".Os plimsoll ", plim_version());
    plim_console_puts(c, ".Sh NAME\n");
    manual_line(c, ".Nm plimsoll-", cmd->name);
    manual_line(c, ".Nd ", cmd->doc);
    plim_console_puts(c, ".Sh SYNOPSIS\n");
    manual_line(c, ".Nm plimsoll\n.Cm ", cmd->name);
    if (cmd->options & PLIM_USE_COMMAND) {
        plim_console_puts(c, ".Op Ar OPTIONS\n.Fl -\n");
        manual_usage(c, cmd);
        plim_console_puts(c, ".Op Ar ARGUMENT ...\n");
    } else {
        manual_usage(c, cmd);
        plim_console_puts(c, ".Op Ar OPTIONS\n");
    }
    plim_console_puts(c, ".Sh DESCRIPTION\n");
    manual_sentence(c, cmd->doc);
    if (cmd->about)
        manual_text(c, cmd->about, strlen(cmd->about));
    plim_console_puts(c, ".Sh OPTIONS\n");
    manual_options(c, cmd);
    plim_console_puts(c, ".Sh EXAMPLES\n");
    for (int i = 0; i < PLIM_EXAMPLES && cmd->examples[i]; i++) {
        plim_console_puts(c, ".Dl $ ");
        manual_example(c, cmd->examples[i]);
    }
    plim_console_puts(c, ".Sh SEE ALSO\n.Xr plimsoll 1 ,\n"
                         "which describes models, the environment and the exit status.\n");
}
