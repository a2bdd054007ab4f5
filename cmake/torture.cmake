# torture.cmake -- tests/torture: what a hostile user, a hostile file and a failing system do.  ctest runs
# a part of each; `make torture` runs all.

# ---- calls of the system that fail once, files that are cut short ----

if(TARGET plimsoll AND NOT sanitize AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    add_library(torture_faults MODULE tests/torture/faults.c)
    target_link_libraries(torture_faults PRIVATE plim_flags dl pthread)
    add_test(NAME torture.faults
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/torture/faults.py --every 40
                     $<TARGET_FILE:plimsoll> $<TARGET_FILE:torture_faults>)
    add_test(NAME torture.bombs
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/torture/bombs.py
                     $<TARGET_FILE:plimsoll>)
endif()

# ---- many questions in one process ----

plim_test_program(torture_soak SOURCES tests/torture/soak.c tests/unit/scenarios.c)
target_include_directories(torture_soak PRIVATE tests/unit)
add_test(NAME torture.soak COMMAND torture_soak 1000)
