/* cmd_completion.c -- plimsoll completion SHELL [WORD...]: the script that makes a shell
 * complete command lines of plimsoll, and the answers to what that script asks: with the
 * words of a line as operands, what the last of them can become.
 *
 * So the scripts hold no list: commands, options, their values, cards and models come from
 * the tables that `plimsoll help` and the lists are made from. */
#include "cmds.h"
#include "topics.h"

#include <stdio.h>
#include <string.h>

/* A line that stands for "and the names of files". */
#define FILES "/"

typedef struct shell {
    const char *name;
    char before_doc; /* separates a word from its description; 0: it shows none */
    const char *script;
} shell;

/* ---- the scripts ------------------------------------------------------------------- */

/* clang-format off */
static const shell shells[] = {
{"bash", 0,
 "# bash completion for plimsoll\n"
 "_plimsoll()\n"
 "{\n"
 "    local words=() word line cut=\n"
 "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
 "        # bash takes --gpu=t4 for three words\n"
 "        if [[ ${#words[@]} -gt 0 && ( $word == \"=\" || ${words[-1]} == --*= ) ]]; then\n"
 "            words[-1]+=$word\n"
 "        else\n"
 "            words+=(\"$word\")\n"
 "        fi\n"
 "    done\n"
 "    [[ ${words[-1]} == --*=* ]] && cut=${words[-1]%%=*}=\n"
 "    COMPREPLY=()\n"
 "    while IFS= read -r line; do\n"
 "        if [[ $line == " FILES " ]]; then\n"
 "            compopt -o filenames 2>/dev/null\n"
 "            while IFS= read -r line; do\n"
 "                COMPREPLY+=(\"$line\")\n"
 "            done < <(compgen -f -- \"${words[-1]#\"$cut\"}\")\n"
 "        else\n"
 "            COMPREPLY+=(\"${line#\"$cut\"}\")\n"
 "        fi\n"
 "    done < <(\"$1\" completion bash -- \"${words[@]}\" 2>/dev/null)\n"
 "}\n"
 "complete -F _plimsoll plimsoll\n"},
{"zsh", ':',
 "#compdef plimsoll\n"
 "# zsh completion for plimsoll\n"
 "_plimsoll()\n"
 "{\n"
 "    local line files=\n"
 "    local -a found\n"
 "    for line in \"${(@f)$(${~words[1]} completion zsh -- \"${(@Q)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
 "        if [[ $line == " FILES " ]]; then\n"
 "            files=1\n"
 "        elif [[ -n $line ]]; then\n"
 "            found+=(\"$line\")\n"
 "        fi\n"
 "    done\n"
 "    (( $#found )) && _describe -V plimsoll found\n"
 "    if [[ -n $files ]]; then\n"
 "        compset -P '--*='\n"
 "        _files\n"
 "    fi\n"
 "}\n"
 "if [[ $funcstack[1] == _plimsoll ]]; then\n"
 "    _plimsoll\n"
 "else # `source <(plimsoll completion zsh)`\n"
 "    compdef _plimsoll plimsoll\n"
 "fi\n"},
{"fish", '\t',
 "# fish completion for plimsoll\n"
 "function __plimsoll_complete\n"
 "    set -l words (commandline -opc) (commandline -ct)\n"
 "    for line in ($words[1] completion fish -- $words[2..-1] 2>/dev/null)\n"
 "        if test \"$line\" = " FILES "\n"
 "            __fish_complete_path (commandline -ct)\n"
 "        else\n"
 "            echo $line\n"
 "        end\n"
 "    end\n"
 "end\n"
 "complete -c plimsoll -f -a '(__plimsoll_complete)'\n"},
};
/* clang-format on */

static const shell *shell_find(const char *name)
{
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shells[i].name, name))
            return &shells[i];
    return NULL;
}

/* ---- what a word can become ---------------------------------------------------------- */

/* The word to complete: its last part is, after `fixed` characters such as those of "--gpu=". */
typedef struct asked {
    plim_console *console;
    const shell *shell;
    const char *word;
    size_t fixed;
} asked;

/* Can the word become one that ends with these n characters? */
static bool asked_fits(const asked *q, const char *text, size_t n)
{
    size_t typed = strlen(q->word + q->fixed);
    return typed <= n && !memcmp(q->word + q->fixed, text, typed);
}

static void asked_offer(const asked *q, const char *text, size_t n, const char *doc,
                        size_t doc_n)
{
    if (!asked_fits(q, text, n))
        return;
    plim_console_put(q->console, q->word, q->fixed);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == q->shell->before_doc)
            plim_console_puts(q->console, "\\");
        plim_console_put(q->console, text + i, 1);
    }
    if (q->shell->before_doc && doc_n) {
        plim_console_put(q->console, &q->shell->before_doc, 1);
        plim_console_put(q->console, doc, doc_n);
    }
    plim_console_puts(q->console, "\n");
}

static void asked_offer_text(const asked *q, const char *text, const char *doc)
{
    asked_offer(q, text, strlen(text), doc, strlen(doc));
}

static void asked_offer_files(const asked *q) { plim_console_puts(q->console, FILES "\n"); }

/* Words separated by any of the characters of `between`. */
static void asked_offer_words(const asked *q, const char *words, const char *between)
{
    for (size_t n; *words; words += n + strspn(words + n, between)) {
        n = strcspn(words, between);
        asked_offer(q, words, n, "", 0);
    }
}

/* The first of the names that begins as the word does.  `names` has spaces or commas between
 * them; a name with a space cannot be one of them, nor be typed without quotation marks. */
static bool asked_offer_first(const asked *q, const char *names, const char *doc)
{
    for (size_t n; *names; names += n + strspn(names + n, ", ")) {
        n = strcspn(names, ", ");
        if (asked_fits(q, names, n)) {
            asked_offer(q, names, n, doc, strlen(doc));
            return true;
        }
    }
    return false;
}

/* The names of a list such as `plimsoll gpus`. */
static void asked_offer_list(const asked *q, const char *list)
{
    plim_registry r;
    plim_entry e = PLIM_ENTRY_INIT;
    plim_gpu_info g = PLIM_GPU_INFO_INIT;
    if (!plim_cmd_list(list, &r))
        return;
    for (uint32_t i = 0; r == PLIM_REG_GPUS && plim_gpu_info_at(i, &g); i++)
        if (!*g.mig_of || strchr(q->word, ':')) /* there are many */
            asked_offer_first(q, g.aliases, g.name);
    for (uint32_t i = 0; r != PLIM_REG_GPUS && plim_registry_at(r, i, &e); i++)
        if (!asked_offer_first(q, e.name, e.doc) && e.also)
            asked_offer_first(q, e.also, e.doc);
}

static void asked_offer_commands(const asked *q)
{
    const plim_cmd *cmd = NULL;
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++)
        asked_offer_text(q, cmd->name, cmd->doc);
}

/* Of help: a command is one, too. */
static void asked_offer_topics(const asked *q)
{
    const plim_topic *t = NULL;
    asked_offer_commands(q);
    for (size_t i = 0; (t = plim_topic_at(i)); i++)
        asked_offer_text(q, t->name, t->doc);
}

/* ---- operands and options ------------------------------------------------------------ */

static void asked_offer_operand(const asked *q, const plim_cmd *cmd)
{
    const char *usage = cmd->usage + (*cmd->usage == '[');
    bool model = !strncmp(usage, "MODEL", 5) || !strncmp(usage, "A B", 3); /* of diff */
    if (model)
        asked_offer_list(q, "models");
    if (model || !strncmp(usage, "FILE", 4) || (cmd->options & PLIM_USE_COMMAND))
        asked_offer_files(q);
    else if (!strncmp(usage, "TOPIC", 5))
        asked_offer_topics(q);
    else if (!strncmp(usage, "FILTER", 6))
        asked_offer_list(q, cmd->name);
    else if (!strncmp(usage, "SHELL", 5))
        for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
            asked_offer_text(q, shells[i].name, "");
}

static void asked_offer_options(const asked *q, const plim_cmd *cmd)
{
    asked name = {q->console, q->shell, q->word, 2};
    plim_opt_info o;
    if (strncmp(q->word, "--", strlen(q->word) < 2 ? strlen(q->word) : 2) != 0)
        return;
    name.word = strlen(q->word) < 2 ? "--" : q->word;
    for (int i = 0; plim_opt_at(cmd->name, cmd->options, i, &o); i++)
        asked_offer(&name, o.name, strlen(o.name), o.doc, o.doc_n);
}

static void asked_offer_values(asked q, const plim_opt_info *o)
{
    const char *comma = strrchr(q.word + q.fixed, ',');
    if (o->words) {
        asked_offer_words(&q, o->words, "| ");
    } else if (o->list) {
        if (comma) /* the next of a list, "t4,a100" */
            q.fixed = (size_t)(comma + 1 - q.word);
        asked_offer_list(&q, o->list);
    } else if (!strcmp(o->arg, "FILE")) {
        asked_offer_files(&q);
    }
}

/* The option whose name is the n characters at `name`, if it takes a value. */
static bool asked_find_option(const plim_cmd *cmd, const char *name, size_t n,
                              plim_opt_info *out)
{
    for (int i = 0; plim_opt_at(cmd->name, cmd->options, i, out); i++)
        if (out->arg && strlen(out->name) == n && !memcmp(out->name, name, n))
            return true;
    return false;
}

/* The last word of the line after the command's name. */
static void asked_answer(const asked *q, const plim_cmd *cmd, char **words, int n)
{
    plim_opt_info o;
    bool options = true, operand = false;
    for (int i = 0; i < n - 1; i++) {
        if (!strcmp(words[i], "--")) {
            options = false;
        } else if (options && !strncmp(words[i], "--", 2)) {
            if (!asked_find_option(cmd, words[i] + 2, strlen(words[i] + 2), &o))
                continue;
            if (i == n - 2) {
                asked_offer_values(*q, &o);
                return;
            }
            i++; /* its value */
        } else {
            operand = true;
            options = options && !(cmd->options & PLIM_USE_COMMAND);
        }
    }
    size_t name = strcspn(q->word, "=");
    if (options && !strncmp(q->word, "--", 2) && q->word[name] == '=') {
        asked value = *q;
        value.fixed = name + 1;
        if (asked_find_option(cmd, q->word + 2, name - 2, &o))
            asked_offer_values(value, &o);
        return;
    }
    bool full =
        !*cmd->usage || (operand && !strstr(cmd->usage, "...") && !strchr(cmd->usage, ' ') &&
                         !(cmd->options & PLIM_USE_COMMAND));
    if (options && (*q->word == '-' || (!*q->word && full)))
        asked_offer_options(q, cmd);
    else if (!full)
        asked_offer_operand(q, cmd);
}

static int completion_run(plim_args *a)
{
    const plim_cmd *cmd = NULL;
    const shell *sh = shell_find(a->operand);
    if (!sh)
        return plim_console_usage("unknown shell '%s' (expected one of bash, zsh, fish)",
                                  a->operand);
    if (a->n_operands == 1) {
        plim_console_puts(&a->console, sh->script);
        return PLIM_EXIT_DONE;
    }
    char **words = a->operands + 1;
    int n = a->n_operands - 1;
    asked q = {&a->console, sh, words[n - 1], 0};
    if (n == 1) {
        asked_offer_commands(&q);
        asked_offer_words(&q, "--help --version", " ");
        return PLIM_EXIT_DONE;
    }
    for (size_t i = 0; (cmd = plim_cmd_at(i)); i++)
        if (!strcmp(cmd->name, words[0]))
            asked_answer(&q, cmd, words + 1, n - 1);
    return PLIM_EXIT_DONE;
}

const plim_cmd plim_cmd_completion = {
    .name = "completion",
    .usage = "SHELL [WORD...]",
    .doc = "print the completion script of bash, zsh or fish",
    .about =
        "The script completes commands, options and their values, cards, models and files. "
        "The first example is for bash, and with 'zsh' for zsh; the second for fish. With the "
        "WORDs of a command line, print what the last of them can become: that is what the "
        "script asks.",
    .examples = {"source <(plimsoll completion bash)", "plimsoll completion fish | source"},
    .run = completion_run,
};
