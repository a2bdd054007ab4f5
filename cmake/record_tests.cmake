# record_tests.cmake -- the tests of what record.cmake builds.

if(NOT TARGET plimsoll_record OR NOT TARGET plimsoll OR NOT Python3_FOUND)
    return()
endif()
set(record_tests ${CMAKE_SOURCE_DIR}/tests/record)
set(record_out ${CMAKE_BINARY_DIR}/record)
add_executable(record_program ${record_tests}/program.c)
target_link_libraries(record_program PRIVATE plim_flags ${CMAKE_DL_LIBS} Threads::Threads)
add_executable(record_linked ${record_tests}/linked.c)
add_library(record_workspace SHARED ${record_tests}/workspace.c)
target_link_libraries(record_workspace PRIVATE plim_flags plim_libcudart_so_13)
set_target_properties(record_workspace PROPERTIES OUTPUT_NAME workspace
                      LIBRARY_OUTPUT_DIRECTORY ${record_out})
target_link_libraries(record_linked PRIVATE plim_flags plim_libcuda_so_1 record_workspace)
add_library(record_next MODULE ${record_tests}/next.c)
target_link_libraries(record_next PRIVATE plim_flags ${CMAKE_DL_LIBS})
set_target_properties(record_next PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME program-next
                      LIBRARY_OUTPUT_DIRECTORY ${record_out})
set_target_properties(record_program PROPERTIES OUTPUT_NAME program)
set_target_properties(record_linked PROPERTIES OUTPUT_NAME program-linked)
set_target_properties(record_program record_linked PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${record_out})
add_test(NAME record.driver
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/check.py $<TARGET_FILE:plimsoll>
                 ${stub_out} ${record_out}/program)
add_test(NAME record.endings
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/endings.py $<TARGET_FILE:plimsoll>
                 ${stub_out})
set_tests_properties(record.driver record.endings PROPERTIES TIMEOUT 600)
foreach(framework torch llama)
    add_test(NAME record.${framework}
             COMMAND ${Python3_EXECUTABLE} ${record_tests}/frameworks.py
                     $<TARGET_FILE:plimsoll> ${stub_out} ${framework})
    set_tests_properties(record.${framework} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()
add_test(NAME record.card
         COMMAND ${Python3_EXECUTABLE} ${record_tests}/card.py $<TARGET_FILE:plimsoll>)
set_tests_properties(record.card PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)

# ---- what is true of `run`, too ------------------------------------------------

# Standard streams that are closed or full, and the folders in TMPDIR.
add_test(NAME shell.streams
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/shell/streams.py
                 $<TARGET_FILE:plimsoll>)
add_test(NAME run.folders
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/run/folders.py
                 $<TARGET_FILE:plimsoll>)
