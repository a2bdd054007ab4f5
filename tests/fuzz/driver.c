/* driver.c -- runs a fuzz target without a fuzzer, as ctest does.
 *
 *     fuzz_tape tests/fuzz/corpus/tape
 *
 * Each file is tried whole, cut off after every byte, and with every byte
 * changed (three ways).  Long files are cut and changed at MUTANTS places only,
 * evenly spread, so that a run stays short; which ones does not vary from run
 * to run.  Inputs are copied to a block of exactly their size, where a
 * sanitizer sees a read past the end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { MUTANTS = 512 };
static const size_t longest = 1u << 20;

static unsigned long runs, files;

static void driver_try(const uint8_t *p, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact)
        abort();
    if (n)
        memcpy(exact, p, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    runs++;
}

static void driver_mutate(uint8_t *p, size_t n)
{
    size_t step = n / MUTANTS + 1;
    driver_try(p, n);
    for (size_t i = 0; i < n; i += step) {
        uint8_t was = p[i];
        driver_try(p, i);
        p[i] = (uint8_t)~was;
        driver_try(p, n);
        p[i] = (uint8_t)(was ^ 1);
        driver_try(p, n);
        p[i] = 0xff;
        driver_try(p, n);
        p[i] = was;
    }
}

static int driver_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = malloc(longest);
    if (!f || !p) {
        fprintf(stderr, "cannot read '%s'\n", path);
        return 1;
    }
    size_t n = fread(p, 1, longest, f);
    driver_mutate(p, n);
    fclose(f);
    free(p);
    files++;
    return 0;
}

static int driver_path(const char *path)
{
    struct stat sb;
    if (stat(path, &sb) != 0)
        return 0; /* a target without a corpus still gets the empty input */
    if (!S_ISDIR(sb.st_mode))
        return driver_file(path);
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), bad = 0;
    for (int i = 0; i < n; i++) {
        char full[4096];
        if (entries[i]->d_name[0] != '.' &&
            snprintf(full, sizeof full, "%s/%s", path, entries[i]->d_name) < (int)sizeof full)
            bad |= driver_path(full);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    driver_try((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        bad |= driver_path(argv[i]);
    printf("%lu files, %lu inputs\n", files, runs);
    return bad;
}
