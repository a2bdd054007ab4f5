# live.cmake -- the tests of `plimsoll top`, on machines that do not exist.

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT TARGET plimsoll OR NOT Python3_FOUND)
    return()
endif()

# A libnvidia-ml for each generation of drivers: what it exports differs.
set(live_out ${CMAKE_BINARY_DIR}/nvml)
foreach(generation 470 535 550 580)
    add_library(nvml-${generation} MODULE tests/live/nvml_double.c)
    target_compile_definitions(nvml-${generation} PRIVATE DRIVER=${generation})
    target_link_libraries(nvml-${generation} PRIVATE plim_flags)
    set_target_properties(nvml-${generation} PROPERTIES PREFIX ""
                          LIBRARY_OUTPUT_DIRECTORY ${live_out})
endforeach()
add_test(NAME live.machines
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/check.py
                 $<TARGET_FILE:plimsoll> ${live_out})
add_test(NAME live.outputs
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/outputs.py
                 $<TARGET_FILE:plimsoll> ${live_out})

# What a terminal shows: frames as text, and a day of them without growth of memory.
add_executable(live_frame tests/live/frame.c)
target_include_directories(live_frame PRIVATE include)
target_link_libraries(live_frame PRIVATE plim_flags plimsoll_static)
add_dependencies(live_frame nvml-550)
add_test(NAME live.frames
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/frames.py
                 $<TARGET_FILE:live_frame> ${live_out})
add_test(NAME live.terminal
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/terminal.py
                 $<TARGET_FILE:plimsoll> ${live_out})
# What was kept of readings. 77: the program was built without SQLite.
add_test(NAME live.history
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/history.py
                 $<TARGET_FILE:plimsoll> ${live_out})
set_tests_properties(live.history PROPERTIES SKIP_RETURN_CODE 77)
if(SQLite3_FOUND)
    # The log's own files, and what they take of the program.
    add_executable(live_log_day tests/live/log_day.c cli/top_log.c cli/top_db.c cli/memory.c
                   cli/console.c cli/terminal_posix.c)
    target_include_directories(live_log_day PRIVATE include)
    target_compile_definitions(live_log_day PRIVATE PLIM_SQLITE)
    target_link_libraries(live_log_day PRIVATE plim_flags plimsoll_static SQLite::SQLite3)
    add_test(NAME live.log_day COMMAND live_log_day ${CMAKE_BINARY_DIR}/log_day.db)
    set_tests_properties(live.log_day PROPERTIES FIXTURES_REQUIRED log_day)
    add_test(NAME live.log_day_clean
             COMMAND ${CMAKE_COMMAND} -E rm -f ${CMAKE_BINARY_DIR}/log_day.db)
    set_tests_properties(live.log_day_clean PROPERTIES FIXTURES_SETUP log_day)
endif()
