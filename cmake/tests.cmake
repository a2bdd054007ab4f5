# tests.cmake -- everything ctest counts: unit tests, fuzz corpora, command
# line transcripts, documentation examples, the rules of the tree.

function(plim_test_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE include src)
    target_compile_definitions(${name} PRIVATE PLIM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_link_libraries(${name} PRIVATE plim_flags plimsoll_static ${arg_LIBS})
endfunction()

# ---- tests/unit: each test_*.c a program, the other .c files helpers -------

find_path(CMOCKA_INCLUDE cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
file(GLOB unit_sources CONFIGURE_DEPENDS tests/unit/test_*.c)
file(GLOB unit_helpers CONFIGURE_DEPENDS tests/unit/*.c)
list(FILTER unit_helpers EXCLUDE REGEX "/test_[^/]*$")
if(CMOCKA_INCLUDE AND CMOCKA_LIBRARY)
    foreach(source ${unit_sources})
        get_filename_component(name ${source} NAME_WE)
        plim_test_program(${name} SOURCES ${source} ${unit_helpers} LIBS ${CMOCKA_LIBRARY})
        target_include_directories(${name} SYSTEM PRIVATE ${CMOCKA_INCLUDE})
        target_include_directories(${name} PRIVATE tests/unit)
        string(REGEX REPLACE "^test_" "unit." test ${name})
        add_test(NAME ${test} COMMAND ${name})
    endforeach()
    if(TARGET plimsoll) # whose sandbox it is
        list(FILTER cli_sources INCLUDE REGEX "/sandbox_[a-z]+[.]c$")
        target_sources(test_sandbox PRIVATE ${cli_sources})
    endif()
    # What `make tsan` builds and runs.
    add_custom_target(thread_tests)
    foreach(name threads estimate vgpu zip)
        add_dependencies(thread_tests test_${name})
        set_tests_properties(unit.${name} PROPERTIES LABELS threads)
    endforeach()
else()
    message(WARNING "cmocka was not found: the unit tests are left out "
                    "(tools/deps.sh check installs it)")
endif()

# ---- tests/fuzz: the fuzzer, or the same target over its corpus -------------

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
if(NOT SQLite3_FOUND)
    list(FILTER fuzz_sources EXCLUDE REGEX "/fuzz_history.c$")
endif()
add_custom_target(fuzzers)
foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" target ${name})
    if(PLIM_FUZZ_ENGINE)
        plim_test_program(${name} SOURCES ${source} LIBS ${PLIM_FUZZ_ENGINE})
        if(CMAKE_CXX_COMPILER_LOADED)
            set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
        endif()
    else()
        plim_test_program(${name} SOURCES ${source} tests/fuzz/driver.c)
        add_test(NAME fuzz.${target}
                 COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${target})
    endif()
    add_dependencies(fuzzers ${name})
endforeach()
if(TARGET fuzz_history) # what reads a log is the program's, the library needs no SQLite
    target_sources(fuzz_history PRIVATE cli/top_history.c cli/top_log.c cli/top_db.c cli/memory.c
                   cli/console.c cli/terminal_posix.c)
    target_compile_definitions(fuzz_history PRIVATE PLIM_SQLITE)
    target_link_libraries(fuzz_history PRIVATE SQLite::SQLite3)
endif()

# ---- ONNX: a file an operator, where Debian's package of them is installed ----

plim_test_program(onnx_testdata SOURCES tests/onnx_testdata.c)
add_test(NAME onnx.testdata COMMAND onnx_testdata /usr/share/libonnx-testdata/data)
set_tests_properties(onnx.testdata PROPERTIES SKIP_RETURN_CODE 77)

# ---- bench: built so that they do not rot, run by `make bench` --------------

file(GLOB bench_sources CONFIGURE_DEPENDS bench/bench_*.c)
foreach(source ${bench_sources})
    get_filename_component(name ${source} NAME_WE)
    plim_test_program(${name} SOURCES ${source})
endforeach()

# ---- transcripts, documentation, rules of the tree --------------------------

# find_package(Python3) asks the interpreter seven times, which takes a second of the first build.
find_program(python NAMES python3 python)
set(Python3_FOUND OFF)
if(python)
    execute_process(COMMAND ${python} -c "import sys; print(sys.executable)" OUTPUT_VARIABLE found
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(found)
        set(Python3_FOUND ON)
        set(Python3_EXECUTABLE ${found})
    endif()
endif()
if(NOT Python3_FOUND)
    message(WARNING "python3 was not found: transcripts, documentation examples and the "
                    "rules of the tree are left out (tools/deps.sh check installs it)")
    return()
endif()
add_test(NAME tree.layers
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_layers.py)
add_test(NAME tree.symbols
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_symbols.py
                 ${CMAKE_BINARY_DIR})
set_tests_properties(tree.symbols PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME tree.headers
         COMMAND ${CMAKE_SOURCE_DIR}/tools/check_headers.sh ${CMAKE_C_COMPILER})
add_test(NAME tree.ops
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_ops.py)
if(NOT sanitize) # without what a sanitizer leaves out
    add_test(NAME tree.promises
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_promises.py
                     ${CMAKE_BINARY_DIR})
endif()
add_test(NAME tree.figures
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/figures.py)
add_test(NAME tree.gpus
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/gpus_from_csv.py --check)
if(TARGET plimsoll)
    add_test(NAME tree.sources
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_sources.py
                     --program $<TARGET_FILE:plimsoll>)
endif()
add_test(NAME tree.check_pages
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_pages.py --self-test)
if(TARGET plimsoll)
    add_test(NAME report.renderings
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/report/renderings.py
                     $<TARGET_FILE:plimsoll>)
    add_test(NAME tree.pages
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_pages.py
                     --program $<TARGET_FILE:plimsoll>)
endif()
foreach(how "" --self-test)
    add_test(NAME tree.contact${how}
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_contact.py ${how})
endforeach()
if(PLIM_HARDENING AND NOT sanitize)
    add_test(NAME tree.hardening
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_hardening.py
                     ${CMAKE_BINARY_DIR})
    set_tests_properties(tree.hardening PROPERTIES SKIP_RETURN_CODE 77)
endif()
# The binary interface: what was recorded, and what plimsoll_front says of it to ctypes.
foreach(test check ctypes)
    string(REPLACE check abi name ${test})
    add_test(NAME tree.${name}
             COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER}
                     ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/abi.py ${test}
                     ${CMAKE_BINARY_DIR})
    set_tests_properties(tree.${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME tree.check_docs
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_docs.py --self-test)

# ---- the library from programs that are not ours, and what it says of its settings ----

if(NOT sanitize)
    add_test(NAME docs.library
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_library.py
                     ${CMAKE_BINARY_DIR})
    set_tests_properties(docs.library PROPERTIES SKIP_RETURN_CODE 77)
    add_test(NAME docs.settings_table
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/settings_table.py
                     $<TARGET_FILE:plimsoll_shared>)
    if(TARGET plimsoll)
        add_test(NAME docs.combinations_table
                 COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/combinations.py
                         ${CMAKE_BINARY_DIR})
    endif()
endif()

# ---- the installed tree, moved, from a project that is not ours -----------------------------

if(TARGET plimsoll AND NOT sanitize)
    add_test(NAME install.c
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/install/check.py
                     ${CMAKE_BINARY_DIR})
    set_tests_properties(install.c PROPERTIES SKIP_RETURN_CODE 77)
    add_test(NAME install.packages
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/install/pack.py
                     ${CMAKE_BINARY_DIR})
endif()

# ---- what `make` builds and shows, and what `make dist` fetches --------------------------------

if(TARGET plimsoll AND NOT sanitize)
    add_test(NAME front_door.build
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/front_door/build.py
                     ${CMAKE_BINARY_DIR})
    add_test(NAME front_door.fetch
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/front_door/fetch.py)
    set_tests_properties(front_door.fetch PROPERTIES SKIP_RETURN_CODE 77)
endif()

# ---- what a shell completes, and the manual pages --------------------------------------------

if(TARGET manual AND NOT sanitize)
    add_test(NAME shell.completion
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/shell/check.py
                     ${CMAKE_BINARY_DIR})
endif()

if(TARGET plimsoll)
    add_test(NAME shell.examples
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/shell/examples.py
                     $<TARGET_FILE:plimsoll>)
endif()

# ---- the fuzzers as OSS-Fuzz builds them --------------------------------------------------------

if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND SQLite3_FOUND AND NOT sanitize AND NOT PLIM_FUZZ_ENGINE)
    add_test(NAME fuzz.oss_fuzz
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/fuzz/oss-fuzz/check.py
                     ${CMAKE_BINARY_DIR}/oss-fuzz)
    set_tests_properties(fuzz.oss_fuzz PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endif()

# ---- the sandbox: the same answers, or a refusal ----------------------------------------------

if(TARGET plimsoll)
    add_test(NAME sandbox.answers
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/sandbox/check.py
                     $<TARGET_FILE:plimsoll>)
    set_tests_properties(sandbox.answers PROPERTIES SKIP_RETURN_CODE 77)
endif()

# ---- models of the hub: a server on the loopback ------------------------------------------------

if(TARGET plimsoll)
    add_test(NAME hub.server
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/hub/check.py
                     $<TARGET_FILE:plimsoll>)
    set_tests_properties(hub.server PROPERTIES SKIP_RETURN_CODE 77)
endif()

# ---- files with holes, as large as large models: opened, and hardly any of it is resident ----

if(TARGET plimsoll AND NOT sanitize)
    add_test(NAME files.sparse
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/bench/files.py
                     ${CMAKE_BINARY_DIR} --check)
    set_tests_properties(files.sparse PROPERTIES SKIP_RETURN_CODE 77)
endif()

# ---- tests/run: scripts on a pretend GPU; skipped without a CPU build of PyTorch ----

# A library with sanitizers cannot be loaded into a Python without them.
if(TARGET plimsoll AND NOT sanitize)
    set(run_tests ${CMAKE_SOURCE_DIR}/tests/run)
    # The first builds the shim; the others then run in parallel, the longest first.
    set(run_cost 100)
    foreach(part shim clean leaks halving cases docs world alone ranks endings builds files machine several
                 examples finders scripts figures places lines values kinds tapes snapshots in_backward fits refused
                 accepted measures factories segments modules searches trainer streams)
        set(command ${run_tests}/check.py $<TARGET_FILE:plimsoll> ${part})
        if(part MATCHES "^(endings|builds|files)$")
            set(command ${run_tests}/${part}.py $<TARGET_FILE:plimsoll>)
        elseif(part STREQUAL docs) # the pages' transcripts of runs
            set(command ${CMAKE_SOURCE_DIR}/tools/check_docs.py
                        --program $<TARGET_FILE:plimsoll> --run)
        endif()
        add_test(NAME run.${part} COMMAND ${Python3_EXECUTABLE} ${command})
        set_tests_properties(run.${part} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
                             COST ${run_cost} FIXTURES_REQUIRED torch_shim)
        math(EXPR run_cost "${run_cost} - 1")
    endforeach()
    set_tests_properties(run.shim PROPERTIES FIXTURES_REQUIRED "" FIXTURES_SETUP torch_shim)
    # What it keeps and loads, which needs no PyTorch.
    add_test(NAME run.cache COMMAND ${Python3_EXECUTABLE} ${run_tests}/cache.py $<TARGET_FILE:plimsoll>)
    set_tests_properties(run.cache PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()

# ---- tests/python: the Python package; what needs PyTorch is skipped where there is none ----

if(TARGET plimsoll AND NOT sanitize)
    file(GLOB python_tests CONFIGURE_DEPENDS tests/python/test_*.py)
    foreach(source ${python_tests})
        get_filename_component(name ${source} NAME_WE)
        string(REGEX REPLACE "^test_" "" part ${name})
        add_test(NAME python.${part}
                 COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/python/run.py
                         ${CMAKE_BINARY_DIR} ${part})
        set_tests_properties(python.${part} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
    endforeach()
    add_test(NAME python.notebooks
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/notebooks.py ${CMAKE_BINARY_DIR})
    set_tests_properties(python.notebooks PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endif()

# ---- tests/golden/cuda: PyTorch's own requests on a card, and predictions -------------

if(TARGET plimsoll)
    add_test(NAME golden.cuda
             COMMAND ${CMAKE_COMMAND} -E env PLIMSOLL=$<TARGET_FILE:plimsoll>
                     ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/cuda/compare.py nets)
    add_test(NAME golden.blocks
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/blocks/check.py
                     $<TARGET_FILE:plimsoll>)
    add_test(NAME golden.gpu
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/gpu/compare.py
                     --program $<TARGET_FILE:plimsoll> --check)
    add_test(NAME golden.time
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/time/steps.py
                     --program $<TARGET_FILE:plimsoll> --check)
    add_test(NAME golden.gpu_snapshots
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/gpu/snapshots.py
                     $<TARGET_FILE:plimsoll>)
    add_test(NAME golden.requests
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/gpu/replay.py
                     --program $<TARGET_FILE:plimsoll>
                     ${CMAKE_SOURCE_DIR}/tests/golden/gpu/h100-torch2.11.0-requests.txt)
    # Recorded dry runs of whole models, and what is predicted for them.
    add_test(NAME golden.differential
             COMMAND ${CMAKE_COMMAND} -E env PLIMSOLL=$<TARGET_FILE:plimsoll>
                     ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/differential/differential.py
                     compare)
    # Recorded runs of other people's code, and what is predicted for them: the loop that most people of
    # transformers write, peft, generate(), ranks of jobs on several cards, the published table of
    # ZeRO's model states, the buffers of llama.cpp.
    foreach(script idiom/idiom scaler/scaler tune/tune serve/serve share/share share/part share/context share/experts share/stage
                   share/zero_table share/estimator share/reserved loss/loss llamacpp/llamacpp serve/logs
                   megatron/gpt families/steps families/networks families/denoisers families/audio families/detectors
                   releases/releases releases/bnb attention/attention)
        get_filename_component(name ${script} NAME)
        add_test(NAME golden.${name}
                 COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/golden/${script}.py
                         $<TARGET_FILE:plimsoll>)
    endforeach()
endif()

if(TARGET plimsoll)
    file(GLOB transcripts RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS tests/cli/*.txt)
    file(GLOB_RECURSE docs RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS docs/*.md)
    list(APPEND docs README.md)
    foreach(page ${transcripts} ${docs})
        if(page MATCHES "^tests/cli/(.*)\\.txt$")
            set(test cli.${CMAKE_MATCH_1})
        else()
            # A page without an example is not a test.
            file(STRINGS ${page} blocks REGEX "^ *```console$")
            if(NOT blocks)
                continue()
            endif()
            string(REPLACE "/" "." test ${page})
            string(REGEX REPLACE "^docs\\.|\\.md$" "" test docs.${test})
        endif()
        add_test(NAME ${test}
                 COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_docs.py
                         --program $<TARGET_FILE:plimsoll> ${CMAKE_SOURCE_DIR}/${page})
    endforeach()
endif()

# ---- families: what they build, as runs of transformers showed it ---------------

plim_test_program(family_nodes SOURCES tests/families/nodes.c)
set(families_golden ${CMAKE_SOURCE_DIR}/tests/golden/families)
add_test(NAME golden.families
         COMMAND ${Python3_EXECUTABLE} ${families_golden}/nodes.py $<TARGET_FILE:family_nodes>)
add_test(NAME tree.families COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/families/table.py)
