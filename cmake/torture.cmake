# torture.cmake -- tests/torture: what a hostile user, a hostile file and a failing system do.  ctest runs
# a part of each; `make torture` runs all (docs/robustness.md).

# ---- mutants of all files through plimsoll.h ----

set(torture ${CMAKE_SOURCE_DIR}/tests/torture)
if(NOT WIN32)
    plim_test_program(torture_files
                      SOURCES ${torture}/files.c ${torture}/ways.c ${torture}/contract.c
                              ${torture}/mutate.c ${torture}/tree.c ${torture}/tree_formats.c
                              ${torture}/archive.c
                      LIBS plim_strict ZLIB::ZLIB)
    add_custom_target(torture DEPENDS torture_files)
    if(TARGET test_nomem)
        add_dependencies(torture test_nomem)
    endif()
    if(TARGET plimsoll)
        add_dependencies(torture plimsoll)
    endif()
    add_test(NAME torture.files COMMAND torture_files -n 3000)
    add_test(NAME torture.seeds COMMAND torture_files -n 0)
endif()

# ---- absurd command lines ----

if(TARGET plimsoll AND NOT WIN32)
    set(seconds 2)
    if(sanitize)
        set(seconds 10)
    endif()
    add_test(NAME torture.lines
             COMMAND ${Python3_EXECUTABLE} ${torture}/lines.py
                     $<TARGET_FILE:plimsoll> -n 200 -t ${seconds})
endif()

# ---- calls of the system that fail once, files that are cut short ----

if(TARGET plimsoll AND NOT sanitize AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    add_library(torture_faults MODULE ${torture}/faults.c)
    target_link_libraries(torture_faults PRIVATE plim_flags dl pthread)
    add_test(NAME torture.faults
             COMMAND ${Python3_EXECUTABLE} ${torture}/faults.py --every 40
                     $<TARGET_FILE:plimsoll> $<TARGET_FILE:torture_faults>)
    add_test(NAME torture.bombs
             COMMAND ${Python3_EXECUTABLE} ${torture}/bombs.py
                     $<TARGET_FILE:plimsoll>)
endif()

# ---- many questions in one process ----

plim_test_program(torture_soak SOURCES ${torture}/soak.c tests/unit/scenarios.c)
target_include_directories(torture_soak PRIVATE tests/unit)
if(NOT sanitize) # a sanitizer keeps what was freed
    add_test(NAME torture.soak COMMAND torture_soak 1000)
endif()

# ---- the Python package from several threads: what of the library the thread sanitizer sees ----

if(PLIM_TSAN)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libtsan.so
                    OUTPUT_VARIABLE tsan_library OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
                    OUTPUT_VARIABLE tsan_python OUTPUT_STRIP_TRAILING_WHITESPACE) # no script in between
    add_dependencies(thread_tests plimsoll_shared plimsoll)
    if(IS_ABSOLUTE "${tsan_library}")
        add_test(NAME python.threads_tsan
                 COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${tsan_library}
                         PYTHONPATH=${CMAKE_SOURCE_DIR}/python:${CMAKE_SOURCE_DIR}/tests/python
                         PYTHONDONTWRITEBYTECODE=1 PLIMSOLL_LIBRARY=$<TARGET_FILE:plimsoll_shared>
                         PLIMSOLL_PROGRAM=$<TARGET_FILE:plimsoll>
                         ${tsan_python} -m unittest test_threads)
        set_tests_properties(python.threads_tsan PROPERTIES LABELS threads TIMEOUT 600)
    endif()
endif()
